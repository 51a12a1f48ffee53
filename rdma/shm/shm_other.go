//go:build !linux

package shm

import (
	"fmt"

	"github.com/gccl/gccl/rdma"
	"go.uber.org/zap"
)

// Options has a usable zero value.
type Options struct{ Logger *zap.Logger }

// Device cannot be made on this operating system.
type Device struct{ rdma.BellDevice }

// AttachPays returns rdma.ErrUnavailable, too.
func AttachPays() error { return fmt.Errorf("shm: needs Linux: %w", rdma.ErrUnavailable) }

// AllowAttach returns it, too.
func AllowAttach() error { return AttachPays() }

// New returns rdma.ErrUnavailable: the provider needs Linux (memfd, futex, abstract sockets).
func New(Options) (*Device, error) {
	return nil, fmt.Errorf("shm: needs Linux: %w", rdma.ErrUnavailable)
}
