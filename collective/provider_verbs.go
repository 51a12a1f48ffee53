//go:build linux && !noverbs

package collective

import (
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

// openVerbs opens the first active RDMA device.
func openVerbs(cfg *Config) (rdma.Device, error) {
	return verbs.Open(verbs.Options{HCA: cfg.HCA, Timeout: uint8(min(max(cfg.IBTimeout, 0), 255)), Logger: cfg.Logger})
}
