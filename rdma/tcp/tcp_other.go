//go:build !linux

package tcp

import (
	"fmt"
	"runtime"

	"github.com/gccl/gccl/rdma"
)

// Open opens the device of this process. It needs Linux: polling and watching are written for
// its epoll.
func Open(opts Options) (rdma.Device, error) {
	if _, err := opts.withDefaults(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: tcp: not written for %s", rdma.ErrUnavailable, runtime.GOOS)
}
