package meet

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Target is a host with a range of ports.
type Target struct {
	Host        string // a name or an IP address, without brackets
	First, Last int
}

// ParseTargets reads "host:port", "host:first-last", "[v6]:port", or a comma list of them.
func ParseTargets(text string) ([]Target, error) {
	var out []Target
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		host, ports, err := net.SplitHostPort(part)
		if err != nil || host == "" {
			return nil, fmt.Errorf("%w: root address %q: want host:port, host:first-last or [v6]:port", ErrConfig, part)
		}
		first, last, err := ParsePorts(ports)
		if err != nil {
			return nil, fmt.Errorf("%w: root address %q: %w", ErrConfig, part, err)
		}
		out = append(out, Target{host, first, last})
	}
	return out, nil
}

// maxPorts bounds a range of ports, as each of them is tried.
const maxPorts = 1024

// ParsePorts reads "port" or "first-last".
func ParsePorts(text string) (first, last int, err error) {
	from, to, isRange := strings.Cut(text, "-")
	first, err = strconv.Atoi(strings.TrimSpace(from))
	if last = first; err == nil && isRange {
		last, err = strconv.Atoi(strings.TrimSpace(to))
	}
	if err != nil || first < 1 || last > 65535 || last < first {
		return 0, 0, fmt.Errorf("ports %q: want a number or first-last, from 1 to 65535", text)
	}
	if last-first >= maxPorts {
		return 0, 0, fmt.Errorf("ports %q: at most %d of them", text, maxPorts)
	}
	return first, last, nil
}

// IsIP says whether the host is an address rather than a name.
func (t Target) IsIP() bool {
	_, err := netip.ParseAddr(t.Host)
	return err == nil
}

// JoinHostPort is net.JoinHostPort for a number.
func JoinHostPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// IsLoopback says whether a target can mean this host only.
func (t Target) IsLoopback() bool {
	if ip, err := netip.ParseAddr(t.Host); err == nil {
		return ip.IsLoopback()
	}
	name := strings.TrimSuffix(strings.ToLower(t.Host), ".")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}
