package schedule

import "fmt"

var collectiveNames = [...]string{
	AllReduce:     "allreduce",
	ReduceScatter: "reducescatter",
	AllGather:     "allgather",
	Broadcast:     "broadcast",
	Reduce:        "reduce",
	Gather:        "gather",
	Scatter:       "scatter",
	AllToAll:      "alltoall",
	Scan:          "scan",
	Exscan:        "exscan",
}

// Collectives lists all of them, in the order of their constants.
func Collectives() []Collective {
	all := make([]Collective, 0, len(collectiveNames)-1)
	for c := AllReduce; int(c) < len(collectiveNames); c++ {
		all = append(all, c)
	}
	return all
}

// String is the name in lower case, without spaces: "allreduce".
func (c Collective) String() string {
	if c.valid() {
		return collectiveNames[c]
	}
	return fmt.Sprintf("collective(%d)", uint8(c))
}

// ParseCollective is the inverse of String.
func ParseCollective(name string) (Collective, error) {
	for _, c := range Collectives() {
		if collectiveNames[c] == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("schedule: no collective is called %q", name)
}

func (c Collective) valid() bool { return c >= AllReduce && int(c) < len(collectiveNames) }

// Rooted tells whether one rank is special: Broadcast, Reduce, Gather, Scatter.
func (c Collective) Rooted() bool {
	return c == Broadcast || c == Reduce || c == Gather || c == Scatter
}

// Reduces tells whether the collective combines values by the caller's operation.
func (c Collective) Reduces() bool {
	switch c {
	case AllReduce, ReduceScatter, Reduce, Scan, Exscan:
		return true
	}
	return false
}

// Finishes tells whether results are finished, which is what Final marks: AllReduce,
// ReduceScatter and Reduce. The partial results of Scan and Exscan are other ranks' results, so
// that operations which need finishing (Avg) have no meaning there.
func (c Collective) Finishes() bool {
	return c == AllReduce || c == ReduceScatter || c == Reduce
}

// InBlocks is the number of blocks of In, where a rank has an In: size where it holds data for
// everybody, else 1.
func (c Collective) InBlocks(size int) int {
	switch c {
	case ReduceScatter, Scatter, AllToAll:
		return size
	}
	return 1
}

// OutBlocks is the number of blocks of Out, where a rank has an Out: size where it holds
// everybody's data, else 1.
func (c Collective) OutBlocks(size int) int {
	switch c {
	case AllGather, Gather, AllToAll:
		return size
	}
	return 1
}

// Blocks is the number of blocks of In and of Out of one rank; 0 where it has none: In of
// Broadcast and Scatter, Out of Reduce and Gather, both off the root.
func (c Collective) Blocks(rank, size, root int) (in, out int) {
	in, out = c.InBlocks(size), c.OutBlocks(size)
	if rank != root {
		switch c {
		case Broadcast, Scatter:
			in = 0
		case Reduce, Gather:
			out = 0
		}
	}
	return in, out
}

// InPlaceOffset is the place of the smaller of In and Out inside the larger one when a call is in
// place, in blocks: the rank's own block where the larger one has a block for every rank, else 0.
func (c Collective) InPlaceOffset(rank, size int) int {
	if c.InBlocks(size) != c.OutBlocks(size) {
		return rank
	}
	return 0
}
