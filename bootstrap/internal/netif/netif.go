// Package netif chooses the network interfaces whose addresses a rank tells the others.
package netif

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Interface is what the choice depends on.
type Interface struct {
	Name     string
	Up       bool
	Loopback bool
	Addrs    []netip.Addr
}

// System returns the interfaces of this host.
func System() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	out := make([]Interface, 0, len(all))
	for _, i := range all {
		in := Interface{
			Name:     i.Name,
			Up:       i.Flags&net.FlagUp != 0,
			Loopback: i.Flags&net.FlagLoopback != 0,
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has just gone
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				addr := p.Addr().Unmap()
				if addr.Is6() && addr.IsLinkLocalUnicast() {
					addr = addr.WithZone(i.Name)
				}
				in.Addrs = append(in.Addrs, addr)
			}
		}
		out = append(out, in)
	}
	return out, nil
}

// Filter is a choice of interfaces by name, in NCCL's syntax: a comma list of prefixes, or of exact
// names behind "=", and all of it negated by a leading "^".
type Filter struct {
	text    string
	names   []string
	exact   bool
	exclude bool
}

// ParseFilter reads a filter. The empty text lets everything pass.
func ParseFilter(text string) (Filter, error) {
	f := Filter{text: text}
	rest := strings.TrimSpace(text)
	if rest == "" {
		return f, nil
	}
	rest, f.exclude = strings.CutPrefix(rest, "^")
	rest, f.exact = strings.CutPrefix(rest, "=")
	for _, name := range strings.Split(rest, ",") {
		name = strings.TrimSpace(name)
		if name == "" || strings.ContainsAny(name, "^= ") {
			return f, fmt.Errorf("interface list %q: want names with commas between them, "+
				"with at most one ^ and then one = in front of all", text)
		}
		f.names = append(f.names, name)
	}
	return f, nil
}

func (f Filter) match(name string) bool {
	named := slices.ContainsFunc(f.names, func(n string) bool {
		if f.exact {
			return name == n
		}
		return strings.HasPrefix(name, n)
	})
	return named != f.exclude
}

// Select returns the interfaces of all that are up, have an address and pass the filter. Unless the
// filter names what to include, loopback and docker bridges count only if there is nothing else. It is
// an error that names what exists if nothing is left.
func (f Filter) Select(all []Interface) ([]Interface, error) {
	var chosen, last []Interface
	for _, i := range all {
		if !i.Up || len(i.Addrs) == 0 || len(f.names) > 0 && !f.match(i.Name) {
			continue
		}
		if (i.Loopback || strings.HasPrefix(i.Name, "docker")) && (f.exclude || len(f.names) == 0) {
			last = append(last, i)
			continue
		}
		chosen = append(chosen, i)
	}
	if len(chosen) == 0 {
		chosen = last
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no interface matches %q; this host has %s", f.text, Describe(all))
	}
	return chosen, nil
}

// Describe lists interfaces for a person.
func Describe(all []Interface) string {
	var parts []string
	for _, i := range all {
		state := "down"
		switch {
		case i.Up && len(i.Addrs) == 0:
			state = "no address"
		case i.Up:
			var addrs []string
			for _, a := range i.Addrs {
				addrs = append(addrs, a.WithZone("").String())
			}
			state = strings.Join(addrs, " ")
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", i.Name, state))
	}
	if len(parts) == 0 {
		return "no interface at all"
	}
	return strings.Join(parts, ", ")
}

// Addrs returns the addresses of interfaces that another process can be told: IPv4 first, then IPv6.
// Loopback addresses are among them only if loopback is true, and link-local ones never, as they mean
// nothing on another host.
func Addrs(interfaces []Interface, loopback bool) []netip.Addr {
	var v4, v6 []netip.Addr
	for _, i := range interfaces {
		for _, a := range i.Addrs {
			switch {
			case a.IsLoopback() && !loopback, a.IsLinkLocalUnicast(), a.IsMulticast(), a.IsUnspecified():
			case a.Is4():
				v4 = append(v4, a)
			default:
				v6 = append(v6, a)
			}
		}
	}
	return append(v4, v6...)
}
