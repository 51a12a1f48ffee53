//go:build linux && !noverbs

package collective

import (
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

// mayHaveVerbs reports whether it is worth trying to open verbs.
func mayHaveVerbs() bool { return verbs.KernelHasDevices() }

// openVerbs opens the first active RDMA device, or the first two for several queue pairs a connection.
func openVerbs(cfg *Config) (rdma.Device, error) {
	o := verbs.Options{ // check refuses what is out of range
		HCA: cfg.HCA, Timeout: uint8(cfg.IBTimeout), Logger: cfg.Logger, GIDIndex: cfg.IBGIDIndex,
		TrafficClass: uint8(cfg.IBTrafficClass), ServiceLevel: uint8(cfg.IBServiceLevel), PKeyIndex: uint16(cfg.IBPKeyIndex),
	}
	if cfg.IBQueuePairs > 1 {
		d, err := verbs.OpenRails(o, cfg.IBQueuePairs)
		if err != nil {
			return nil, err
		}
		return d, nil
	}
	d, err := verbs.Open(o)
	if err != nil {
		return nil, err
	}
	return d, nil
}
