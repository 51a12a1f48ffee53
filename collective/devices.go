package collective

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/rdma"
)

// devices are a communicator's own: a device has one bell, and a bell one waiter.
type devices struct{ list []rdma.Device }

// get returns the device of a provider, opening it at its first use.
func (s *devices) get(name string, cfg *Config) (rdma.Device, error) {
	for _, d := range s.list {
		if d.Attr().Provider == name {
			return d, nil
		}
	}
	d, err := openProvider(name, cfg)
	switch {
	case errors.Is(err, ErrUnavailable):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	s.list = append(s.list, d)
	return d, nil
}

func (s *devices) close() error {
	var errs []error
	for _, d := range s.list {
		errs = append(errs, d.Close())
	}
	s.list = nil
	return errors.Join(errs...)
}
