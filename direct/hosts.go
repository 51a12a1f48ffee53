package direct

import (
	"errors"

	"github.com/gccl/gccl/schedule"
)

// hosts is who shares a host with whom: members[h] are the ranks of host h in rising order, hosts
// in the order of their lowest ranks.
type hosts struct {
	members [][]int
	host    []int // of each rank, an index of members
	local   []int // place of each rank in its host
}

func newHosts(size int, shape schedule.Shape) hosts {
	if h, ok := consecutive(size, shape); ok {
		return h
	}
	h := hosts{host: make([]int, size), local: make([]int, size)}
	index := make(map[int]int)
	for r := range size {
		name := 0
		if shape.Hosts != nil {
			name = shape.Hosts[r]
		}
		i, ok := 0, false
		if r > 0 && (shape.Hosts == nil || shape.Hosts[r-1] == name) {
			i, ok = h.host[r-1], true // most ranks share the host of the one before: no need to look
		} else {
			i, ok = index[name]
		}
		if !ok {
			i = len(h.members)
			index[name] = i
			h.members = append(h.members, nil)
		}
		h.host[r], h.local[r] = i, len(h.members[i])
		h.members[i] = append(h.members[i], r)
	}
	return h
}

// consecutive is newHosts where hosts are numbered in order and the ranks of each follow one another, as
// launchers place them: in one pass, without asking for memory for every host.
func consecutive(size int, shape schedule.Shape) (h hosts, ok bool) {
	if len(shape.Hosts) != size || size == 0 || shape.Hosts[0] != 0 {
		return h, false
	}
	last := shape.Hosts[size-1]
	if last < 0 || last >= size {
		return h, false
	}
	for r := 1; r < size; r++ {
		if d := shape.Hosts[r] - shape.Hosts[r-1]; d != 0 && d != 1 {
			return h, false
		}
	}
	all := make([]int, 2*size)
	h = hosts{host: shape.Hosts, local: all[:size:size], members: make([][]int, 0, last+1)}
	ranks := all[size:]
	for from := 0; from < size; {
		to := from
		for to < size && shape.Hosts[to] == shape.Hosts[from] {
			h.local[to], ranks[to] = to-from, to
			to++
		}
		h.members = append(h.members, ranks[from:to:to])
		from = to
	}
	return h, true
}

// equal tells whether all hosts have as many ranks.
func (h *hosts) equal() bool {
	for _, m := range h.members {
		if len(m) != len(h.members[0]) {
			return false
		}
	}
	return true
}

// column is the ranks with one place in their hosts, one a host; the hosts must be equal.
func (h *hosts) column(local int) []int {
	ranks := make([]int, len(h.members))
	for i, m := range h.members {
		ranks[i] = m[local]
	}
	return ranks
}

// leaders is one rank a host, the lowest one, but the root on its host.
func (h *hosts) leaders(root int) []int {
	ranks := make([]int, len(h.members))
	for i, m := range h.members {
		ranks[i] = m[0]
	}
	ranks[h.host[root]] = root
	return ranks
}

var errUnequal = errors.New("direct: hosts have different numbers of ranks")

// equalHosts is the Supports of algorithms that need as many ranks on every host.
func equalHosts(size int, shape schedule.Shape) error {
	if err := check(0, size, shape); err != nil {
		return err
	}
	if h := newHosts(size, shape); !h.equal() {
		return errUnequal
	}
	return nil
}
