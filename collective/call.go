package collective

import (
	"fmt"
	"math"
	"strings"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// Kind is what a call does.
type Kind uint8

// The kinds of calls. Those that schedules describe have the schedule's number.
const (
	AllReduce     = Kind(schedule.AllReduce)
	ReduceScatter = Kind(schedule.ReduceScatter)
	AllGather     = Kind(schedule.AllGather)
	Broadcast     = Kind(schedule.Broadcast)
	Reduce        = Kind(schedule.Reduce)
	Gather        = Kind(schedule.Gather)
	Scatter       = Kind(schedule.Scatter)
	AllToAll      = Kind(schedule.AllToAll)
	Scan          = Kind(schedule.Scan)
	Exscan        = Kind(schedule.Exscan)
	Barrier       = Kind(schedule.Exscan) + 1
	Send          = Barrier + 1
	Recv          = Send + 1
)

// String is the name in lower case.
func (k Kind) String() string {
	switch k {
	case Barrier:
		return "barrier"
	case Send:
		return "send"
	case Recv:
		return "recv"
	}
	return schedule.Collective(k).String()
}

// Call is one operation of a communicator, to be run, prepared, started or grouped. The methods
// named after the kinds ([Comm.AllReduce] …) fill it in; fields that a kind does not use are ignored.
type Call struct {
	Kind     Kind
	Dst, Src tensor.Tensor
	Op       tensor.Op // AllReduce, ReduceScatter, Reduce, Scan, Exscan
	Root     int       // Broadcast, Reduce, Gather, Scatter
	Peer     int       // Send, Recv
	// Counts are element counts per rank, where blocks differ in length. nil: all blocks are equally long.
	// AllGather, ReduceScatter: what each rank has of the large buffer, the same counts on all ranks.
	// Gather, Scatter: the root gives all counts; the others an empty list that is not nil ([]int{}),
	// since nil says that all blocks are equally long. AllToAll: what this rank sends to each, and
	// RecvCounts what it receives from each.
	Counts, RecvCounts []int
}

// String describes the call: "allreduce(float32[1024], sum)".
func (c Call) String() string {
	t := c.Src
	if c.Kind == Recv || t.DType() == tensor.Invalid {
		t = c.Dst
	}
	s := fmt.Sprintf("%s(%v", c.Kind, t)
	switch {
	case c.Kind == Barrier:
		return "barrier()"
	case c.Kind.reduces():
		s += ", " + c.Op.Name()
	}
	switch c.Kind {
	case Broadcast, Reduce, Gather, Scatter:
		s += fmt.Sprintf(", root %d", c.Root)
	case Send:
		s += fmt.Sprintf(", to %d", c.Peer)
	case Recv:
		s += fmt.Sprintf(", from %d", c.Peer)
	}
	return s + ")"
}

// uneven describes the call by the name of the method that made it: "alltoallv(float32[8])" where it has counts.
func (c *Call) uneven() string {
	s := c.String()
	if c.Counts == nil && c.RecvCounts == nil {
		return s
	}
	name := c.Kind.String()
	return name + "v" + strings.TrimPrefix(s, name)
}

func (k Kind) reduces() bool { return k < Barrier && schedule.Collective(k).Reduces() }
func (k Kind) finishes() bool {
	return k < Barrier && schedule.Collective(k).Finishes()
}
func (k Kind) rooted() bool { return k < Barrier && schedule.Collective(k).Rooted() }

// check refuses a kind that there is not.
func (k Kind) check() error {
	if k < AllReduce || k > Recv {
		return invalid("call of kind %d, which there is not", uint8(k))
	}
	return nil
}

// shape is a checked call in numbers: what a plan is made for.
type shape struct {
	dtype   tensor.DType
	count   int   // elements of the whole (AllReduce …), of one block where blocks are equal, or of the transfer
	in, out []int // block lengths of this rank's In and Out
	longest int
	uneven  bool
	inPlace bool // of an AllToAll, which then needs another algorithm: all ranks must agree on it
}

// check validates a call against the communicator and returns its shape. It is the place where
// wrong arguments are found before anything is sent.
func (c *Comm) check(call *Call, sh *shape) error {
	if err := call.Kind.check(); err != nil {
		return err
	}
	dst, src := call.Dst, call.Src
	root := call.Kind.rooted()
	if root && (call.Root < 0 || call.Root >= c.size) {
		return invalid("%v: root %d of %d ranks", *call, call.Root, c.size)
	}
	if call.Kind == Barrier {
		*sh = shape{dtype: tensor.Uint8, in: append(sh.in[:0], 0), out: sh.out[:0]}
		for range c.size {
			sh.out = append(sh.out, 0)
		}
		return nil
	}
	needDst, needSrc := c.needs(call)
	sh.dtype = dst.DType()
	if !needDst {
		sh.dtype = src.DType()
	}
	if sh.dtype == tensor.Invalid {
		return invalid("%v: no tensor given", *call)
	}
	if needDst && needSrc && dst.DType() != src.DType() {
		return invalid("%v: destination is %v, source %v", *call, dst.DType(), src.DType())
	}
	if call.Kind.reduces() && !call.Op.Valid() {
		return invalid("%v: no reduction operation given", *call)
	}
	if call.Op == tensor.Avg && !call.Kind.finishes() && call.Kind.reduces() {
		return invalid("%v: a prefix has no average: use sum and divide", *call)
	}
	if err := c.lengths(call, sh, needDst, needSrc); err != nil {
		return err
	}
	if needDst && needSrc {
		return c.aliases(call, sh)
	}
	return nil
}

// needs tells which of its two tensors a call uses on this rank.
func (c *Comm) needs(call *Call) (dst, src bool) {
	atRoot := !call.Kind.rooted() || call.Root == c.rank
	switch call.Kind {
	case Barrier:
		return false, false
	case Broadcast, Scatter:
		return true, atRoot
	case Reduce, Gather:
		return atRoot, true
	case Send:
		return false, true
	case Recv:
		return true, false
	}
	return true, true
}

// lengths fills in the block lengths and holds them against the tensors.
func (c *Comm) lengths(call *Call, sh *shape, needDst, needSrc bool) error {
	sh.in, sh.out, sh.count, sh.longest, sh.inPlace, sh.uneven = sh.in[:0], sh.out[:0], 0, 0, false, call.Counts != nil || call.RecvCounts != nil
	k := call.Kind
	if k >= Send {
		t := call.Src
		if k == Recv {
			t = call.Dst
		}
		if call.Peer < 0 || call.Peer >= c.size || call.Peer == c.rank {
			return invalid("%v: peer %d of %d ranks, this is rank %d", *call, call.Peer, c.size, c.rank)
		}
		sh.count = t.Len()
		if k == Send {
			sh.in = append(sh.in, sh.count)
		} else {
			sh.out = append(sh.out, sh.count)
		}
		return nil
	}
	coll := schedule.Collective(k)
	inBlocks, outBlocks := coll.InBlocks(c.size), coll.OutBlocks(c.size)
	if sh.uneven {
		return c.unevenLengths(call, sh, needDst, needSrc)
	}
	per := -1
	fit := func(t tensor.Tensor, blocks int, need bool, name string) error {
		if !need {
			return nil
		}
		if t.Len()%blocks != 0 {
			return invalid("%v: %s has %d elements, which %d ranks cannot share evenly", *call, name, t.Len(), blocks)
		}
		if per >= 0 && t.Len()/blocks != per {
			return invalid("%v: source has %d elements, destination %d", *call, call.Src.Len(), call.Dst.Len())
		}
		per = t.Len() / blocks
		return nil
	}
	if err := fit(call.Src, inBlocks, needSrc, "source"); err != nil {
		return err
	}
	if err := fit(call.Dst, outBlocks, needDst, "destination"); err != nil {
		return err
	}
	sh.count, sh.longest = per, per
	for range inBlocks {
		sh.in = append(sh.in, per)
	}
	for range outBlocks {
		sh.out = append(sh.out, per)
	}
	return nil
}

// unevenLengths does it for calls with counts.
func (c *Comm) unevenLengths(call *Call, sh *shape, needDst, needSrc bool) error {
	sum := func(counts []int, name string) (int, error) {
		if len(counts) != c.size {
			return 0, invalid("%v: %d %s for %d ranks", call.uneven(), len(counts), name, c.size)
		}
		n := 0
		for r, v := range counts {
			if v < 0 {
				return 0, invalid("%v: %s[%d] is %d", call.uneven(), name, r, v)
			}
			if n > math.MaxInt-v {
				return 0, invalid("%v: the %s add up to more than an int holds", call.uneven(), name)
			}
			n += v
			sh.longest = max(sh.longest, v)
		}
		return n, nil
	}
	which := "counts"
	want := func(t tensor.Tensor, n int, need bool, name string) error {
		if need && t.Len() != n {
			return invalid("%v: %s has %d elements, the %s say %d", call.uneven(), name, t.Len(), which, n)
		}
		return nil
	}
	switch call.Kind {
	case AllGather, ReduceScatter:
		n, err := sum(call.Counts, "counts")
		if err != nil {
			return err
		}
		small, large := call.Src, call.Dst
		names := [2]string{"source", "destination"}
		if call.Kind == ReduceScatter {
			small, large = large, small
			names[0], names[1] = names[1], names[0]
		}
		if err := want(small, call.Counts[c.rank], true, names[0]); err != nil {
			return err
		}
		if err := want(large, n, true, names[1]); err != nil {
			return err
		}
		sh.in, sh.out = append(sh.in, call.Counts[c.rank]), append(sh.out, call.Counts...)
		if call.Kind == ReduceScatter {
			sh.in, sh.out = sh.out, sh.in
		}
		sh.count = n
	case Gather, Scatter:
		mine, all := call.Src, call.Dst
		if call.Kind == Scatter {
			mine, all = all, mine
		}
		if call.Root != c.rank {
			sh.in, sh.out = append(sh.in, mine.Len()), append(sh.out, mine.Len())
			return nil
		}
		n, err := sum(call.Counts, "counts")
		if err != nil {
			return err
		}
		if err := want(all, n, true, "the root's tensor of all blocks"); err != nil {
			return err
		}
		if err := want(mine, call.Counts[c.rank], true, "the root's own block"); err != nil {
			return err
		}
		sh.in, sh.out = append(sh.in, call.Counts[c.rank]), append(sh.out, call.Counts...)
		if call.Kind == Scatter {
			sh.in, sh.out = sh.out, sh.in
		}
	case AllToAll:
		n, err := sum(call.Counts, "send counts")
		if err != nil {
			return err
		}
		m, err := sum(call.RecvCounts, "receive counts")
		if err != nil {
			return err
		}
		which = "send counts"
		if err := want(call.Src, n, needSrc, "source"); err != nil {
			return err
		}
		which = "receive counts"
		if err := want(call.Dst, m, needDst, "destination"); err != nil {
			return err
		}
		if call.Counts[c.rank] != call.RecvCounts[c.rank] {
			return invalid("%v: this rank sends itself %d elements and receives %d", call.uneven(), call.Counts[c.rank], call.RecvCounts[c.rank])
		}
		sh.in, sh.out = append(sh.in, call.Counts...), append(sh.out, call.RecvCounts...)
	default:
		return invalid("%v: counts per rank are not for this call", *call)
	}
	return nil
}

// aliases refuses overlaps that are not in place.
func (c *Comm) aliases(call *Call, sh *shape) error {
	switch tensor.Compare(call.Dst, call.Src) {
	case tensor.Disjoint:
		return nil
	case tensor.Same:
		if call.Dst.Len() == call.Src.Len() {
			sh.inPlace = call.Kind == AllToAll
			return nil
		}
	}
	small, large, blocks := call.Src, call.Dst, sh.out
	if len(sh.in) > len(sh.out) {
		small, large, blocks = call.Dst, call.Src, sh.in
	}
	if len(sh.in) != len(sh.out) {
		lo := 0
		for _, n := range blocks[:c.rank] {
			lo += n
		}
		if tensor.Compare(small, large.Slice(lo, lo+blocks[c.rank])) == tensor.Same {
			return nil
		}
	}
	return invalid("%v: destination and source overlap, but not as this call can work in place", call.uneven())
}
