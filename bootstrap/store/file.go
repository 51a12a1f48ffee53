package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// File is a Store in a directory that all processes see, on one host or on a shared file system. A key
// is a file; it is written under another name and renamed, so that a reader finds a whole value or
// none. Waiting is by polling.
type File struct{ dir string }

// Names in a store's directory. No name in a key has these characters, so that a key may be the
// beginning of another and none can mean the store's own files.
const (
	valuePrefix = "="
	tempPattern = "+tmp-*"
	lockName    = "+lock"
)

// NewFile opens the store in dir, which it creates, readable by its user only, if need be.
func NewFile(dir string) (*File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &File{dir: dir}, nil
}

// path is where a key's value lies: the key a/b in the file a/=b.
func (f *File) path(key string) string {
	dir, name := filepath.Split(filepath.FromSlash(key))
	return filepath.Join(f.dir, dir, valuePrefix+name)
}

// Set implements Store.
func (f *File) Set(ctx context.Context, key string, value []byte) error {
	if err := Check(key, value); err != nil {
		return err
	}
	return f.locked(ctx, func() error { return f.write(key, value) })
}

func (f *File) write(key string, value []byte) (err error) {
	path := f.path(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), tempPattern)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	if _, err := tmp.Write(value); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Get implements Store.
func (f *File) Get(ctx context.Context, key string) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	pause := time.Millisecond
	for {
		value, err := f.read(key)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return value, err
		}
		if !sleep(ctx, &pause) {
			return nil, fmt.Errorf("store: waiting for key %s in %s: %w", key, f.dir, context.Cause(ctx))
		}
	}
}

func (f *File) read(key string) ([]byte, error) {
	file, err := os.Open(f.path(key))
	if err != nil {
		// A network file system may say that a handle is stale when the file was just replaced.
		if errors.Is(err, syscall.ESTALE) {
			err = fs.ErrNotExist
		}
		return nil, err
	}
	defer file.Close()
	value, err := io.ReadAll(io.LimitReader(file, MaxValue+1))
	if err != nil {
		return nil, err
	}
	if len(value) > MaxValue {
		return nil, fmt.Errorf("store: the file of key %s has more than %d bytes", key, MaxValue)
	}
	return value, nil
}

// CompareAndSet implements Store.
func (f *File) CompareAndSet(ctx context.Context, key string, old, value []byte) error {
	if err := Check(key, value); err != nil {
		return err
	}
	return f.locked(ctx, func() error {
		now, err := f.read(key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if (err == nil) != (old != nil) || !bytes.Equal(now, old) {
			return fmt.Errorf("%w: key %s", ErrConflict, key)
		}
		return f.write(key, value)
	})
}

// Delete implements Store.
func (f *File) Delete(ctx context.Context, prefix string) error {
	if err := CheckPrefix(prefix); err != nil {
		return err
	}
	return f.locked(ctx, func() error {
		return filepath.WalkDir(f.dir, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(f.dir, path)
			if err != nil {
				return err
			}
			dir, name := filepath.Split(rel)
			name, isValue := strings.CutPrefix(name, valuePrefix)
			if !isValue || !strings.HasPrefix(filepath.ToSlash(dir+name), prefix) {
				return nil
			}
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			for dir := filepath.Dir(path); dir != filepath.Clean(f.dir); dir = filepath.Dir(dir) {
				if os.Remove(dir) != nil {
					break // others have values there
				}
			}
			return nil
		})
	})
}

// Close implements Store.
func (f *File) Close() error { return nil }

// sleep waits for *pause and doubles it, to a tenth of a second. It returns false once ctx is done.
func sleep(ctx context.Context, pause *time.Duration) bool {
	t := time.NewTimer(*pause)
	defer t.Stop()
	*pause = min(2**pause, 100*time.Millisecond)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
