// Package schedule describes collective algorithms as data.
//
// A [Schedule] says what one rank does: a few lanes of steps over chunk indices. It holds no
// pointer, byte length, element type or clock, so that one description serves the executor, the
// verifier, the simulator and the reader. Algorithms (packages ring, tree, direct) are pure
// functions that return schedules.
//
// # Words
//
// A chunk is the unit that an algorithm moves, named by its index in a buffer. The buffers of a
// call are In (what the caller gave), Out (what the caller receives) and Scratch. In and Out are
// made of blocks: one block for AllReduce, Broadcast, Reduce and Scan; one block per rank on the
// side that holds everybody's data (Out of AllGather and Gather, In of ReduceScatter and Scatter,
// both of AllToAll). The chunks of a buffer divide each block evenly: chunk i belongs to block
// i / (chunks per block).
//
// A window is one replay of the schedule over a slice of every block; the executor replays a
// schedule as often as the message needs, so a schedule's size does not depend on the message.
package schedule

import "math"

// Collective names the meaning of a schedule: what Out must hold when every rank has finished.
type Collective uint8

// The collectives. Barrier is an AllGather of zero elements and has no entry of its own.
const (
	AllReduce     Collective = iota + 1 // every Out = In of rank 0 ⊕ … ⊕ In of rank n−1
	ReduceScatter                       // Out of rank r = block r of the reduction
	AllGather                           // block r of every Out = In of rank r
	Broadcast                           // every Out = In of the root
	Reduce                              // Out of the root = the reduction
	Gather                              // block r of the root's Out = In of rank r
	Scatter                             // Out of rank r = block r of the root's In
	AllToAll                            // block s of Out of rank r = block r of In of rank s
	Scan                                // Out of rank r = In of rank 0 ⊕ … ⊕ In of rank r
	Exscan                              // Out of rank r = In of rank 0 ⊕ … ⊕ In of rank r−1; rank 0's Out stays as it was
)

// Op is what a step does.
type Op uint8

// The operations. recv stands for the data that the peer's paired Send carries.
const (
	Send       Op = iota + 1 // Src goes to Peer
	Recv                     // Dst = recv
	RecvReduce               // Dst = Src ⊕ recv; with Left: Dst = recv ⊕ Src
	Copy                     // Dst = Src
	Combine                  // Dst = Dst ⊕ Src; with Left: Dst = Src ⊕ Dst
)

// Buf names one of the three buffers of a call.
type Buf uint8

// The buffers. None marks a span that a step does not use.
const (
	None Buf = iota
	In
	Out
	Scratch
)

// Span is the chunks [First, First+Count) of a buffer.
type Span struct {
	Buf          Buf
	First, Count int
}

// At is the span of the one chunk i of b.
func At(b Buf, i int) Span { return Span{Buf: b, First: i, Count: 1} }

// After makes a step wait until the first Steps steps of lane Lane of the same rank, in the same
// window, have finished. The zero value waits for nothing.
type After struct{ Lane, Steps int }

// Step is one instruction of a lane.
type Step struct {
	Op   Op
	Peer int  // Send, Recv, RecvReduce: the other rank; 0 and unused for Copy and Combine
	Src  Span // what is read locally: Send, RecvReduce, Copy, Combine
	Dst  Span // what is written: Recv, RecvReduce, Copy, Combine; as long as Src, or as recv
	// Left puts the received (RecvReduce) or the Src operand (Combine) on the left of ⊕. It
	// matters to operations that do not commute, and to the bits of NaN.
	Left bool
	// Final marks the step whose Dst holds the complete reduction, before it is passed on: there
	// the executor finishes it (Avg divides). In a reducing collective every chunk of a result is
	// final exactly once; what is sent on after that arrives finished. Scan and Exscan have no
	// final steps: a prefix is passed on and goes on growing, so operations that finish are not
	// defined for them.
	Final bool
	After After
}

// Lane is a list of steps that run in order. The lanes of a rank run concurrently.
//
// A run of consecutive steps that build one value is one n-ary step: every operand is read before
// Dst is written, and the value is built in the order of the steps. A run is the steps of a group
// of [Fuse] that write: one that begins it, then each RecvReduce from and into the same span and
// each Combine into it. So a left fold over all ranks may write Out and read In in its middle
// where In and Out are the same memory.
type Lane []Step

// Chunk names one chunk of In or Out.
type Chunk struct {
	Buf   Buf
	Index int
}

// Schedule is what one rank does in one window of a collective.
//
// Invariants, checked by [Schedule.Validate] and assumed everywhere else:
//
//  1. In and Out are as many whole blocks as [Collective.Blocks] says, of equally many chunks.
//  2. Spans lie inside their buffers, have one chunk or more, and are zero where the Op has no use
//     for them. In is never written. Src and Dst of one step are the same span or do not overlap.
//  3. Src and Dst of one step have equal counts, and their chunks have equal sizes in pairs.
//  4. A peer is another rank; it is 0 for Copy and Combine.
//  5. After names steps of another lane, and waiting for them never closes a circle in this rank.
//  6. Left and Final appear only where they mean something.
//
// Checked across ranks by package verify: the k-th Send to p in lane l pairs with the k-th Recv or
// RecvReduce from this rank in p's lane l, with equal chunk counts and sizes; what Out holds when
// all have finished; Final, Early, Lazy, Ahead and Disjoint.
//
// Reading In in a reducing collective applies the operation's scaling, if it has one (Avg,
// PreMulSum): a value read from In is a contribution, a value read from Out or Scratch is a
// partial result. Scratch keeps nothing from one window to the next.
type Schedule struct {
	Collective       Collective
	Rank, Size, Root int
	In, Out          int     // chunks of the buffers; 0 where the rank has none (Out of Reduce off the root)
	Scratch          []Chunk // one entry per scratch chunk: the In or Out chunk whose size it has
	Lanes            []Lane
	// Ahead is how many chunks a link must be able to hold, beyond the one in motion, so that no
	// rank waits for a slot for ever: how far a sender runs ahead before its receiver begins to
	// drain. 0 says that any number of slots will do; a ring in which all send before they receive
	// has 1. See [Schedule.MaxSegments]. Equal on all ranks.
	Ahead int
	// Early declares that data for a Recv step that is a run by itself may land in its Dst at any
	// time after the call began on this rank and the peer has sent: whatever this rank reads from
	// or writes to that Dst before the step has happened before the peer sends. Links that can
	// write a peer's memory then do so without asking. Equal on all ranks. Verified, not trusted.
	Early bool
	// Lazy declares that the Src of a Send may be read as late as its receiver's paired step:
	// nothing on this rank overwrites it before that step is known to have run. Links that can
	// read a peer's memory then lend the span instead of copying it. Equal on all ranks. Verified,
	// not trusted.
	Lazy bool
	// Disjoint declares that In and Out must not be the same memory. Without it the schedule also
	// works in place, which means by exact aliasing: the smaller of In and Out is the block of the
	// larger one that is this rank's own (the root's own in Gather and Scatter), or all of it. A
	// Copy from a chunk to itself then does nothing, unless the collective reduces.
	Disjoint bool
}

// MaxSegments is how many segments a chunk may be cut into for links of the given number of
// slots, so that no rank waits for a slot for ever, whether or not steps are fused (see [Fuse]).
// It is [math.MaxInt] when there is no limit, and 0 when that number of slots is not enough for
// any message.
//
// In a ring in which all send first, every link holds Ahead chunks when the first rank begins to
// drain. A fused step gives its slot back only when it has a slot to write to, so that one slot
// more must be free: segments·Ahead < slots.
func (s *Schedule) MaxSegments(slots int) int {
	switch {
	case slots < 1:
		return 0
	case s.Ahead == 0:
		return math.MaxInt
	}
	return (slots - 1) / s.Ahead
}

// PerBlock is the number of chunks that divide one block.
func (s *Schedule) PerBlock() int {
	in, out := s.Collective.Blocks(s.Rank, s.Size, s.Root)
	switch {
	case in > 0:
		return s.In / in
	case out > 0:
		return s.Out / out
	}
	return 0
}

// chunkClass is the position of a chunk in its block: chunks of one class have one size. The span's
// buffer must hold the chunk.
func (s *Schedule) chunkClass(b Buf, i, perBlock int) int {
	if b == Scratch {
		i = s.Scratch[i].Index
	}
	return i % perBlock
}

// Shape is what an algorithm needs to know beyond rank and size. The zero value is legal.
type Shape struct {
	Root int // Broadcast, Reduce, Gather, Scatter
	// Pieces divides a chunk for algorithms that pipeline within one window (chains and trees):
	// they use Pieces chunks per block. 0 means 1.
	Pieces int
	// Hosts[r] is an index of the host of rank r, for two-level algorithms; nil: one host.
	Hosts []int
	// Radix of k-nomial trees and of recursive multiplying; 0 means 2.
	Radix int
	// Aggregate is how many chunks a PAT algorithm puts into one message at most, which bounds
	// its scratch memory; 0 means as many as give the fewest messages.
	Aggregate int
}

// Algorithm makes the schedule of one rank. It is pure: the same arguments give the same schedule
// on every rank and machine. It returns an error for arguments that it cannot serve (a size that
// is no power of two, a root out of range), never a wrong schedule.
type Algorithm func(rank, size int, shape Shape) (Schedule, error)
