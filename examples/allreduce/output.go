package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gccl/gccl/examples/allreduce/internal/npy"
	"github.com/gccl/gccl/examples/allreduce/internal/safetensors"
)

// tempEnv names the file that rank 0 writes before it renames it, so that the launcher can remove what
// a killed rank 0 leaves behind.
const tempEnv = "ALLREDUCE_TEMP"

// temp is a name beside the output file that no other job uses.
func (o *options) temp() string {
	if t := os.Getenv(tempEnv); t != "" {
		return t
	}
	dir, base := filepath.Split(o.Out)
	return filepath.Join(dir, fmt.Sprintf(".%s.%d.tmp", base, os.Getpid()))
}

// checkOut finds early what would stop write.
func (o *options) checkOut(ts []named) error {
	if _, _, err := o.encode(ts); err != nil {
		return fmt.Errorf("-out %s: %w", o.Out, err)
	}
	dir := filepath.Dir(o.Out)
	if st, err := os.Stat(dir); err != nil {
		return fmt.Errorf("-out %s: %w", o.Out, err)
	} else if !st.IsDir() {
		return fmt.Errorf("-out %s: %s is not a directory", o.Out, dir)
	}
	if st, err := os.Stat(o.Out); err == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("-out %s: it exists and is not a regular file", o.Out)
	}
	return nil
}

// encode returns the header of the output file and the order of the tensors' data after it.
func (o *options) encode(ts []named) (header []byte, order []named, err error) {
	if filepath.Ext(o.Out) == ".safetensors" {
		return safetensors.Layout(ts)
	}
	if len(ts) != 1 {
		return nil, nil, fmt.Errorf("a .npy file holds one tensor, there are %d: use .safetensors", len(ts))
	}
	if header, err = npy.Header(ts[0].Data.DType(), ts[0].Shape); err != nil {
		return nil, nil, fmt.Errorf("tensor %q: %w: use .safetensors", ts[0].Name, err)
	}
	return header, ts, nil
}

// write makes the output file appear whole or not at all: it is written under another name, synced,
// and renamed, and then its directory is synced.
func (o *options) write(ctx context.Context, ts []named) (err error) {
	header, order, err := o.encode(ts)
	if err != nil {
		return err
	}
	temp := o.temp()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, remove(temp))
		}
	}()
	err = writeAll(ctx, f, header, order)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, o.Out); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(o.Out))
	if err != nil {
		return fmt.Errorf("written, but perhaps not durable: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("written, but perhaps not durable: %w", err)
	}
	return nil
}

// writeAll writes in pieces, so that an interrupted rank stops soon.
func writeAll(ctx context.Context, f *os.File, header []byte, order []named) error {
	if _, err := f.Write(header); err != nil {
		return err
	}
	const piece = 4 << 20
	for _, t := range order {
		for b := t.Data.Bytes(); len(b) > 0; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := f.Write(b[:min(piece, len(b))])
			if err != nil {
				return err
			}
			b = b[n:]
		}
	}
	return nil
}

// remove removes a file that may not be there.
func remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
