package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock takes the lock file, or says that another run holds it.
func lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another run is measuring: %w", path, err), f.Close())
	}
	return f.Close, nil
}
