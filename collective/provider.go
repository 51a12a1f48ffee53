package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/shm"
)

// providers are the providers that this build can open, in order of preference.
func providers() []string { return []string{"shm"} }

// openProvider opens a provider's device.
func openProvider(name string) (rdma.Device, error) {
	switch name {
	case "shm":
		return shm.New(shm.Options{})
	}
	return nil, fmt.Errorf("%w: no provider %q; there are %s", ErrInvalid, name, strings.Join(providers(), ", "))
}

// wanted resolves a Provider setting to names in order of preference.
func wanted(setting string) ([]string, error) {
	setting = strings.TrimSpace(setting)
	if setting == "" || setting == "auto" {
		return providers(), nil
	}
	without, exclude := strings.CutPrefix(setting, "^")
	var names []string
	for _, n := range strings.Split(without, ",") {
		n = strings.TrimSpace(n)
		if !slices.Contains(providers(), n) {
			return nil, fmt.Errorf("%w: GCCL_PROVIDER=%s: no provider %q; there are %s", ErrInvalid, setting, n, strings.Join(providers(), ", "))
		}
		names = append(names, n)
	}
	if !exclude {
		return names, nil
	}
	rest := slices.DeleteFunc(providers(), func(n string) bool { return slices.Contains(names, n) })
	if len(rest) == 0 {
		return nil, fmt.Errorf("%w: GCCL_PROVIDER=%s leaves no provider", ErrInvalid, setting)
	}
	return rest, nil
}

// deviceFor chooses the device for a pair of ranks: the first provider of rank 0's list that both
// have and that can reach across. It depends only on the hellos, so both ends choose alike.
func (c *Comm) deviceFor(peer int) (rdma.Device, error) {
	a, b := &c.peers[c.rank], &c.peers[peer]
	for _, name := range c.peers[0].Providers {
		if !slices.Contains(a.Providers, name) || !slices.Contains(b.Providers, name) {
			continue
		}
		if name == "shm" && a.HostID != b.HostID {
			continue
		}
		for _, d := range c.devices {
			if d.Attr().Provider == name {
				return d, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: nothing connects %s and %s: they have %s and %s", ErrUnavailable,
		c.describe(c.rank), c.describe(peer), strings.Join(a.Providers, ", "), strings.Join(b.Providers, ", "))
}
