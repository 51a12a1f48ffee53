package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"path"
	"slices"
	"strings"
)

// iface is what the choice of addresses needs to know of an interface.
type iface struct {
	name     string
	up       bool
	loopback bool
	addrs    []netip.Prefix
}

// localInterfaces lists the interfaces of this host in the kernel's order.
func localInterfaces() ([]iface, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("tcp: list interfaces: %w", err)
	}
	var out []iface
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("tcp: addresses of interface %s: %w", i.Name, err)
		}
		f := iface{
			name:     i.Name,
			up:       i.Flags&net.FlagUp != 0 && i.Flags&net.FlagRunning != 0,
			loopback: i.Flags&net.FlagLoopback != 0,
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				f.addrs = append(f.addrs, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
			}
		}
		out = append(out, f)
	}
	return out, nil
}

// localAddr is an address to listen on.
type localAddr struct {
	iface    string
	prefix   netip.Prefix
	loopback bool
}

// chooseAddrs returns the addresses to listen on, in the order of the interfaces, loopback last.
// Link-local addresses are left out: they mean nothing without the dialler's interface.
func chooseAddrs(ifs []iface, want []string) ([]localAddr, error) {
	if err := checkNames(ifs, want); err != nil {
		return nil, err
	}
	var out, local []localAddr
	for _, f := range ifs {
		if !f.up || (!f.loopback && !chosen(f.name, want)) {
			continue
		}
		for _, p := range f.addrs {
			a := p.Addr()
			switch {
			case f.loopback || a.IsLoopback():
				local = append(local, localAddr{f.name, p, a.IsLoopback()})
			case a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified():
			default:
				out = append(out, localAddr{f.name, p, false})
			}
		}
	}
	if len(out)+len(local) == 0 {
		return nil, fmt.Errorf("tcp: no usable address on the chosen interfaces %q; this host has %s", want, describe(ifs))
	}
	out = append(out, local...)
	return out[:min(len(out), maxCandidates)], nil
}

// checkNames refuses names and patterns that cannot have been meant.
func checkNames(ifs []iface, want []string) error {
	for _, w := range want {
		name := strings.TrimPrefix(w, "^")
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return fmt.Errorf("tcp: interface pattern %q is malformed", w)
		}
		known := slices.ContainsFunc(ifs, func(f iface) bool { return f.name == name })
		if name == w && !known && !strings.ContainsAny(name, `*?[\`) {
			return fmt.Errorf("tcp: there is no interface %q; this host has %s", w, describe(ifs))
		}
	}
	return nil
}

// chosen tells whether name is among the wanted interfaces.
func chosen(name string, want []string) bool {
	included := true
	for _, w := range want {
		if !strings.HasPrefix(w, "^") {
			included = false
		}
	}
	for _, w := range want {
		pattern, exclude := strings.CutPrefix(w, "^")
		if ok, _ := path.Match(pattern, name); ok {
			if exclude {
				return false
			}
			included = true
		}
	}
	return included
}

// describe lists interfaces for a message.
func describe(ifs []iface) string {
	var parts []string
	for _, f := range ifs {
		state := "down"
		if f.up {
			state = "up"
		}
		var addrs []string
		for _, a := range f.addrs {
			addrs = append(addrs, a.String())
		}
		parts = append(parts, fmt.Sprintf("%s (%s; %s)", f.name, state, strings.Join(addrs, ", ")))
	}
	return strings.Join(parts, ", ")
}
