//go:build !linux || noverbs

package collective

import (
	"fmt"

	"github.com/gccl/gccl/rdma"
)

func mayHaveVerbs() bool { return true } // openVerbs says why not

func openVerbs(*Config) (rdma.Device, error) {
	return nil, fmt.Errorf("%w: this build is without verbs (build tag noverbs, or not Linux)", rdma.ErrUnavailable)
}
