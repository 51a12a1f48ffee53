package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/netif"
)

// listenRoot binds the first free port of the root's targets.
func listenRoot(ctx context.Context, cfg *Config, targets []meet.Target) ([]net.Listener, error) {
	if cfg.Listener != nil {
		return []net.Listener{cfg.Listener}, nil
	}
	local, err := localAddrs()
	if err != nil {
		return nil, err
	}
	if cfg.RootIsGuess {
		if err := verifyGuess(ctx, cfg, targets, local); err != nil {
			return nil, err
		}
	}
	hosts := bindHosts(targets, local, cfg.LocalSize == cfg.Size)
	first, last := targets[0].First, targets[0].Last
	waiting, cancel := context.WithTimeout(ctx, meet.BindPatience)
	defer cancel()
	for pause := meet.FirstPause; ; {
		listeners, err := listenFirst(waiting, hosts, first, last)
		if err == nil {
			return listeners, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) || !meet.Rest(waiting, &pause, meet.LongestPause) {
			if errors.Is(err, syscall.EADDRINUSE) {
				err = fmt.Errorf("%w (who holds it? a port that another program owns, like torchrun's "+
					"MASTER_PORT, cannot be the root; choose one with GCCL_ROOT)", err)
			}
			return nil, fmt.Errorf("%w: rank 0 cannot listen: %w", ErrConfig, err)
		}
	}
}

// listenAny binds a port for ranks whose address is told to the others: on all addresses or, for ranks of this host
// alone, on one loopback address, which all of them have.
func listenAny(ctx context.Context, cfg *Config, loopback bool) ([]net.Listener, error) {
	if !loopback {
		return listenAt(ctx, cfg, "")
	}
	listeners, err := listenAt(ctx, cfg, "127.0.0.1")
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		return listenAt(ctx, cfg, "::1")
	}
	return listeners, err
}

func listenAt(ctx context.Context, cfg *Config, host string) ([]net.Listener, error) {
	first, last := 0, 0
	if cfg.ListenPorts != "" {
		var err error
		if first, last, err = meet.ParsePorts(cfg.ListenPorts); err != nil {
			return nil, fmt.Errorf("%w: listen %w", ErrConfig, err)
		}
	}
	listeners, err := listenFirst(ctx, []string{host}, first, last)
	if err != nil {
		return nil, fmt.Errorf("%w: rank %d cannot listen (is GCCL_PORT_RANGE wide enough for the ranks of a host?): %w",
			ErrConfig, cfg.Rank, err)
	}
	return listeners, nil
}

// listenFirst binds the first port of a range that is free on all hosts that exist. Port 0 is any.
func listenFirst(ctx context.Context, hosts []string, first, last int) ([]net.Listener, error) {
	var firstErr error
	for port := first; port <= last; port++ {
		listeners, err := listenAll(ctx, hosts, port)
		if err == nil {
			return listeners, nil
		}
		if firstErr == nil {
			firstErr = err
		}
	}
	return nil, firstErr
}

// listenAll binds one port on every host. All but one may be addresses that this machine lacks.
func listenAll(ctx context.Context, hosts []string, port int) ([]net.Listener, error) {
	var (
		listeners []net.Listener
		lacking   error
		lc        net.ListenConfig
	)
	for _, host := range hosts {
		l, err := lc.Listen(ctx, "tcp", meet.JoinHostPort(host, port))
		switch {
		case err == nil:
			listeners = append(listeners, l)
			port = l.Addr().(*net.TCPAddr).Port
		case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
			lacking = err
		default:
			closeAll(listeners)
			return nil, err
		}
	}
	if len(listeners) == 0 {
		return nil, lacking
	}
	return listeners, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		l.Close()
	}
}

// bindHosts returns what to bind for targets: loopback only if they are its addresses, their own
// addresses if these are known to be local, and else all addresses, as a name may mean one address
// here and another elsewhere. Even "localhost" may be what only rank 0 was told, unless all ranks are
// on this host.
func bindHosts(targets []meet.Target, local []netip.Addr, oneHost bool) []string {
	var hosts []string
	for _, t := range targets {
		ip, err := netip.ParseAddr(t.Host)
		switch {
		case err == nil && (ip.IsLoopback() || slices.Contains(local, ip.Unmap())):
			hosts = append(hosts, t.Host)
		case err != nil && t.IsLoopback() && oneHost:
			hosts = append(hosts, "127.0.0.1", "::1")
		default:
			return []string{""}
		}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// verifyGuess fails if rank 0 finds that none of the targets is this host. Names that do not resolve
// prove nothing.
func verifyGuess(ctx context.Context, cfg *Config, targets []meet.Target, local []netip.Addr) error {
	resolved := false
	for _, t := range targets {
		ips := []string{t.Host}
		if !t.IsIP() {
			var err error
			if ips, err = net.DefaultResolver.LookupHost(ctx, t.Host); err != nil {
				continue
			}
		}
		for _, text := range ips {
			ip, err := netip.ParseAddr(text)
			if err != nil {
				continue
			}
			if resolved = true; ip.IsLoopback() || slices.Contains(local, ip.Unmap()) {
				return nil
			}
		}
	}
	if !resolved {
		return nil
	}
	return fmt.Errorf("%w: the launcher's variables lead to %s, but rank 0 runs on another host: set GCCL_ROOT=host:port",
		ErrConfig, cfg.Root)
}

func localAddrs() ([]netip.Addr, error) {
	all, err := netif.System()
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, i := range all {
		out = append(out, i.Addrs...)
	}
	return out, nil
}

// published returns the addresses under which others can reach listeners, the likeliest first:
// preferred, if it is valid, then those of the interfaces that the configuration selects.
func published(cfg *Config, listeners []net.Listener, preferred netip.Addr, loopback bool) ([]string, error) {
	if cfg.Interface == "" && loopback && onLoopback(listeners) { // whatever the interfaces are
		out := make([]string, len(listeners))
		for i, l := range listeners {
			out[i] = l.Addr().String()
		}
		return out, nil
	}
	filter, err := netif.ParseFilter(cfg.Interface)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	all, err := netif.System()
	if err != nil {
		return nil, err
	}
	selected, err := filter.Select(all)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	usable := netif.Addrs(selected, loopback)
	for _, i := range all {
		if loopback && i.Loopback && !slices.ContainsFunc(selected, func(s netif.Interface) bool { return s.Name == i.Name }) {
			usable = append(usable, netif.Addrs([]netif.Interface{i}, true)...)
		}
	}
	if i := slices.Index(usable, preferred.Unmap()); i > 0 {
		usable[0], usable[i] = usable[i], usable[0]
	}
	var out []string
	for _, l := range listeners {
		bound := l.Addr().(*net.TCPAddr).AddrPort()
		for _, a := range usable {
			if bound.Addr().IsUnspecified() || bound.Addr().Unmap() == a {
				out = append(out, netip.AddrPortFrom(a, bound.Port()).String())
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: rank %d has no address that another host could reach; this host has %s",
			ErrConfig, cfg.Rank, netif.Describe(all))
	}
	return out, nil
}

// onLoopback reports whether listeners can be reached on this host's loopback addresses alone.
func onLoopback(listeners []net.Listener) bool {
	return !slices.ContainsFunc(listeners, func(l net.Listener) bool {
		a, ok := l.Addr().(*net.TCPAddr)
		return !ok || !a.IP.IsLoopback()
	})
}
