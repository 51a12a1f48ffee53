package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/shm"
	"github.com/gccl/gccl/rdma/tcp"
)

// providers are the providers that this build can open, in order of preference.
func providers() []string { return []string{"shm", "verbs", "tcp"} }

// openProvider opens a provider's device.
func openProvider(name string, cfg *Config) (rdma.Device, error) {
	switch name {
	case "loopback":
		d := rdma.Device(cfg.network.Device())
		if cfg.wrap != nil && cfg.Group != nil { // not what is made of survivors
			d = cfg.wrap(cfg.Group.Rank(), d)
		}
		return d, nil
	case "shm":
		return shm.New(shm.Options{Logger: cfg.Logger})
	case "verbs":
		return openVerbs(cfg)
	case "tcp":
		return openTCP(cfg)
	}
	return nil, fmt.Errorf("%w: no provider %q; there are %s", ErrInvalid, name, strings.Join(providers(), ", "))
}

// openTCP listens on a port of its own, for every communicator.
func openTCP(cfg *Config) (rdma.Device, error) {
	first, last, err := cfg.Bootstrap.Ports()
	if err != nil {
		return nil, fmt.Errorf("%w: GCCL_PORT_RANGE: %w", ErrInvalid, err)
	}
	d, err := tcp.Open(tcp.Options{
		Interfaces: interfaces(cfg.Bootstrap.Interface),
		PortMin:    first,
		PortMax:    last,
		Secret:     []byte(cfg.Bootstrap.Secret),
		Encrypt:    cfg.TCPEncrypt,
		Checksum:   cfg.TCPChecksum,
		Sockets:    cfg.TCPSockets,
		Log:        cfg.Logger,
	})
	if err != nil && first != 0 {
		err = fmt.Errorf("%w (GCCL_PORT_RANGE needs a port for each communicator of each rank of a host, beside that of its bootstrap)", err)
	}
	return d, err
}

// interfaces turns NCCL's interface syntax (prefixes; = exact; ^ excluded) into the patterns of
// the tcp provider.
func interfaces(setting string) []string {
	if setting == "" {
		return nil
	}
	setting, exclude := strings.CutPrefix(setting, "^")
	setting, exact := strings.CutPrefix(setting, "=")
	var out []string
	for _, name := range strings.Split(setting, ",") {
		if !exact {
			name += "*"
		}
		if exclude {
			name = "^" + name
		}
		out = append(out, name)
	}
	return out
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
		if strings.HasPrefix(n, "^") {
			return nil, fmt.Errorf("%w: GCCL_PROVIDER=%s: one ^, before the whole list, excludes all of it: ^shm,tcp", ErrInvalid, setting)
		}
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

// providerFor is the provider that connects this rank and a peer.
func (c *Comm) providerFor(peer int) (string, error) {
	a, b := &c.peers[c.rank], &c.peers[peer]
	name := between(c.peers[0].Providers, a, b)
	if name == "" {
		return "", fmt.Errorf("%w: nothing connects %s and %s: they have %s and %s", ErrUnavailable,
			c.describe(c.rank), c.describe(peer), strings.Join(a.Providers, ", "), strings.Join(b.Providers, ", "))
	}
	return name, nil
}

// linkFiles is how many file descriptors the links to a peer take for as long as they exist.
func linkFiles(provider string, cfg *Config) int {
	switch provider {
	case "shm":
		return 2 // connections, one dialled by each end
	case "tcp":
		return max(1, cfg.TCPSockets) // or fewer, as many as the peer's setting says
	}
	return 0 // of verbs, a queue has one, for whatever links
}

// reserveFiles makes sure that links to some ranks can have their file descriptors.
func (c *Comm) reserveFiles(ranks []int) error {
	n := 0
	for _, r := range ranks {
		name, err := c.providerFor(r)
		if err != nil {
			return err
		}
		n += linkFiles(name, &c.cfg)
	}
	return bootstrap.ReserveFiles(n, c.log)
}

// between chooses the provider for a pair of ranks: the first of a list, rank 0's, that both have and
// that can reach across; "" if there is none. It depends only on the hellos, so both ends choose alike.
func between(order []string, a, b *hello) string {
	for _, name := range order {
		if !slices.Contains(a.Providers, name) || !slices.Contains(b.Providers, name) {
			continue
		}
		if name == "shm" && a.HostID != b.HostID {
			continue
		}
		return name
	}
	return ""
}
