// Package ring makes schedules in which every rank talks to its two neighbours only: it receives
// from rank−1 and sends to rank+1, modulo the number of ranks.
//
// Rings and chains move the least data that is possible and need the most steps, so they suit long
// messages and few ranks. With p ranks, a message of S bytes (for ReduceScatter and AllGather: all
// p blocks together) and k = Shape.Pieces, the last rank is done after so many steps, and the
// busiest one has sent so many bytes:
//
//	AllReduce      2(p−1) steps of S/p      2S(p−1)/p
//	ReduceScatter   p−1   steps of S/p       S(p−1)/p
//	AllGather       p−1   steps of S/p       S(p−1)/p
//	Broadcast       p−2+k steps of S/k       S
//	Reduce          p−2+k steps of S/k       S
//
// The first three are optimal in bandwidth (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009). All have one
// lane; [schedule.Channels] gives them more.
package ring

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// begin checks the arguments and returns a schedule without steps for them, with perBlock chunks a
// block.
func begin(c schedule.Collective, rank, size int, shape schedule.Shape, perBlock int) (schedule.Schedule, error) {
	root := 0
	if c.Rooted() {
		root = shape.Root
	}
	fail := func(format string, args ...any) (schedule.Schedule, error) {
		return schedule.Schedule{}, fmt.Errorf("ring: %v: "+format, append([]any{c}, args...)...)
	}
	switch {
	case size < 1:
		return fail("size %d", size)
	case rank < 0 || rank >= size:
		return fail("rank %d outside %d ranks", rank, size)
	case root < 0 || root >= size:
		return fail("root %d outside %d ranks", root, size)
	case shape.Pieces < 0:
		return fail("%d pieces", shape.Pieces)
	}
	in, out := c.Blocks(rank, size, root)
	return schedule.Schedule{
		Collective: c, Rank: rank, Size: size, Root: root,
		In: in * perBlock, Out: out * perBlock,
	}, nil
}

// alone is the lane of the only rank: its input is the result.
func alone(s schedule.Schedule) []schedule.Lane {
	return []schedule.Lane{{{
		Op:  schedule.Copy,
		Src: schedule.Span{Buf: schedule.In, Count: s.In}, Dst: schedule.Span{Buf: schedule.Out, Count: s.Out},
		Final: s.Collective.Finishes(),
	}}}
}

// mod is i modulo n for i ≥ −n.
func mod(i, n int) int { return (i + n) % n }

// A walker appends the steps of one rank, whose neighbours stay the same.
type walker struct {
	lane       schedule.Lane
	next, prev int
}

func newWalker(rank, size, steps int) *walker {
	return &walker{lane: make(schedule.Lane, 0, steps), next: mod(rank+1, size), prev: mod(rank-1, size)}
}

func (w *walker) send(src schedule.Span) {
	w.lane = append(w.lane, schedule.Step{Op: schedule.Send, Peer: w.next, Src: src})
}

func (w *walker) recv(dst schedule.Span) {
	w.lane = append(w.lane, schedule.Step{Op: schedule.Recv, Peer: w.prev, Dst: dst})
}

// reduce puts what has been reduced on the way here to the left of this rank's own src.
func (w *walker) reduce(dst, src schedule.Span, final bool) {
	w.lane = append(w.lane, schedule.Step{Op: schedule.RecvReduce, Peer: w.prev, Src: src, Dst: dst, Left: true, Final: final})
}

func (w *walker) copy(dst, src schedule.Span) {
	w.lane = append(w.lane, schedule.Step{Op: schedule.Copy, Src: src, Dst: dst})
}

func in(i int) schedule.Span      { return schedule.At(schedule.In, i) }
func out(i int) schedule.Span     { return schedule.At(schedule.Out, i) }
func scratch(i int) schedule.Span { return schedule.At(schedule.Scratch, i) }
