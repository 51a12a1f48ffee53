//go:build unix

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// locked runs f while no other process that uses the store runs under its lock. The kernel frees the
// lock of a process that dies.
func (f *File) locked(ctx context.Context, do func() error) error {
	file, err := os.OpenFile(filepath.Join(f.dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer file.Close() // frees the lock
	pause := time.Millisecond
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			if err := do(); err != nil {
				return fmt.Errorf("store: in %s: %w", f.dir, err)
			}
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("store: lock %s: %w", f.dir, err)
		}
		if !sleep(ctx, &pause) {
			return fmt.Errorf("store: waiting for the lock of %s: %w", f.dir, context.Cause(ctx))
		}
	}
}
