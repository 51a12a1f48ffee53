//go:build !unix

package store

import (
	"context"
	"errors"
)

// locked fails: file stores need flock.
func (f *File) locked(context.Context, func() error) error {
	return errors.New("store: shared directories are supported on Unix only")
}
