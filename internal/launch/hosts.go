package launch

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Host is a host with room for some ranks.
type Host struct {
	Name  string // as the remote shell and the ranks know it: a name or an address
	Slots int
}

// maxSlots keeps a slip of the finger from starting very many processes.
const maxSlots = 1 << 16

// ParseHosts reads a list as mpirun takes it: "a:2,b:2"; a host alone has room for one rank. An IPv6
// address with a number stands in brackets: "[fd00::1]:2".
func ParseHosts(text string) ([]Host, error) {
	var hosts []Host
	for _, word := range strings.Split(text, ",") {
		h, err := parseHost(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// ReadHosts reads a file with a host a line, in the words of Open MPI or MPICH: "a slots=2", "a:2" or
// "a". What follows # is a comment.
func ReadHosts(r io.Reader) ([]Host, error) {
	var hosts []Host
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		h, err := parseHost(words[0])
		for _, w := range words[1:] {
			count, ok := strings.CutPrefix(w, "slots=")
			if err != nil || !ok {
				err = fmt.Errorf("%q: want HOST, HOST:N or HOST slots=N", strings.TrimSpace(line))
				break
			}
			h.Slots, err = parseSlots(count)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		hosts = append(hosts, h)
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("it names no host")
	}
	return hosts, nil
}

func parseHost(word string) (Host, error) {
	h := Host{Name: word, Slots: 1}
	if _, err := netip.ParseAddr(word); err == nil {
		return h, nil // an IPv6 address, whose colons are its own
	}
	if at := strings.LastIndexByte(word, ':'); at >= 0 && !strings.HasSuffix(word, "]") {
		slots, err := parseSlots(word[at+1:])
		if err != nil {
			return h, fmt.Errorf("host %q: %w", word, err)
		}
		h = Host{word[:at], slots}
	}
	if strings.HasPrefix(h.Name, "[") && strings.HasSuffix(h.Name, "]") {
		h.Name = h.Name[1 : len(h.Name)-1]
		if _, err := netip.ParseAddr(h.Name); err != nil {
			return h, fmt.Errorf("host %q: %w", word, err)
		}
	}
	// A name that begins with - would be an option of the remote shell.
	if h.Name == "" || strings.HasPrefix(h.Name, "-") || strings.ContainsAny(h.Name, " \t'\"\\$`;&|<>()[]{}*?!") {
		return h, fmt.Errorf("%q is no name of a host", word)
	}
	return h, nil
}

func parseSlots(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxSlots {
		return 0, fmt.Errorf("%q ranks: want a number from 1 to %d", text, maxSlots)
	}
	return n, nil
}

// seat is where one rank runs.
type seat struct {
	host          string
	remote        bool
	local, locals int // which of how many ranks of the job on that host
}

// seats fills the hosts with ranks, in order.
func (j *Job) seats() ([]seat, error) {
	if j.Size < 1 {
		return nil, fmt.Errorf("launch: %d ranks", j.Size)
	}
	hosts := j.Hosts
	if len(hosts) == 0 {
		hosts = []Host{{"localhost", j.Size}}
	}
	self, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("launch: name of this host: %w", err)
	}
	var seats []seat
	count := map[string]int{}
	for _, h := range hosts {
		name, remote := h.Name, !isSelf(h.Name, self)
		for range min(h.Slots, j.Size-len(seats)) {
			seats = append(seats, seat{host: name, remote: remote, local: count[place(name, remote)]})
			count[place(name, remote)]++
		}
	}
	if len(seats) < j.Size {
		return nil, fmt.Errorf("launch: %d ranks, but the hosts have room for %d", j.Size, len(seats))
	}
	for i := range seats {
		seats[i].locals = count[place(seats[i].host, seats[i].remote)]
	}
	return seats, nil
}

// place names a host for counting: all names of this one are one.
func place(name string, remote bool) string {
	if !remote {
		return ""
	}
	return name
}

// isSelf says whether a name is this host's, whose own name is self.
func isSelf(name, self string) bool {
	short, _, _ := strings.Cut(self, ".")
	if loopbackName(name) || name == self || name == short {
		return true
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		addrs, _ := ownAddrs()
		for _, a := range addrs {
			if own, err := netip.ParseAddr(a); err == nil && own == ip.Unmap() {
				return true
			}
		}
	}
	return false
}

func loopbackName(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}
