package executor

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// Layout is how the elements of a call lie in its buffers: the element counts of the blocks of In
// and Out, which follow one another without gaps. A buffer that the rank does not have has no blocks.
type Layout struct {
	Elem    int // bytes of an element
	In, Out []int
	// Window is the most elements of a chunk in one window; 0: everything in one window. All ranks
	// must use the same.
	Window int
	// Longest is the element count of the longest block of any rank; it decides the number of
	// windows. 0: the longest block of In and Out here, which must then be the same everywhere.
	Longest int
	// Pairwise says that lengths are known only to the two ranks of a transfer, so that they are
	// checked per transfer and not by the call's fingerprint.
	Pairwise bool
	// LendMin is the shortest transfer, in bytes, that this rank lends, if that is more than
	// Options.LendMin.
	LendMin int
}

// block is a block of In or Out in bytes.
type block struct{ offset, length int }

// extent is where a span lies: exactly for the first full windows by arithmetic, for the rest by
// the long way.
type extent struct {
	buf          schedule.Buf
	offset, size int // bytes in window 0
	step         int // bytes from a window to the next
	full         int // windows that offset, size and step describe
	blk          block
	chunk, parts int // which part of the block's window
}

// action is a group with everything resolved but the buffers' addresses.
type action struct {
	operands []source
	dst      extent
	hasDst   bool
	store    bool // somebody reads dst after the group
	sends    []link.Sender
	sendTo   []*link.Peer
	shared   *link.Share // sends to all at once; nil: each link gets a copy
	receives []link.Receiver
	recvFrom []*link.Peer
	length   extent
	bytes    int // of a transfer in window 0
	after    schedule.After
	final    bool
	nested   bool // some operand stands left of several: not a fold from the left
	steps    int
	// easy: the one operand, which Put and Take can take, is received and kept, or is local and sent or kept (hand).
	easy bool
	// lendable: a single local operand in In or Out, sent under a schedule that is Lazy.
	lendable bool
	// direct: what is sent is a span of In or Out, which links may take from where it lies (Engine.sendsFrom).
	// lazy: the schedule is.
	direct, lazy bool
	// leaves: what is kept goes to a long Out, where the schedule leaves it.
	leaves bool
	// lands receives what is a chunk of Out as it comes, if that can land there; nil: not so.
	lands link.DirectReceiver
	// placeable: a finished chunk of Out that is passed on under a schedule that is Early.
	placeable bool
}

// source is an operand: the received one of that index, or (recv < 0) a local span.
type source struct {
	recv int
	left bool // stands left of everything before it
	ext  extent
}

// Plan is a program fitted to lengths and bound to links. It is immutable but for its users' one
// at a time use of the links.
type Plan struct {
	Program  *Program
	Layout   Layout
	lanes    [][]action
	windows  int
	scratch  int // bytes
	laneBase int
	maxOps   int // operands and destinations of the largest group
	maxOut   int
	early    bool
	longest  int  // bytes of a transfer in window 0
	small    bool // see fitsInline
	brief    bool // see fitsSlot
	single   bool // small or brief, and its one lane waits for nothing but messages
	piece    int  // bytes of a message at most
}

// Windows returns how often the schedule is replayed.
func (p *Plan) Windows() int { return p.windows }

// Windows returns how often the schedule is replayed under a layout.
func (p *Program) Windows(lay Layout) (int, error) {
	r := resolver{s: &p.Schedule, lay: lay}
	err := r.init()
	return r.windows, err
}

// Plan fits the program to a layout and binds it to links, lane i of the schedule to lane
// laneBase+i of the mesh.
func (p *Program) Plan(m *link.Mesh, lay Layout, laneBase int) (*Plan, error) {
	s := &p.Schedule
	pl := &Plan{Program: p, Layout: lay, laneBase: laneBase, early: s.Early}
	if n := laneBase + len(s.Lanes); n > m.Geometry().Lanes {
		return nil, fmt.Errorf("executor: schedule needs lanes %d to %d, the links have %d", laneBase, n-1, m.Geometry().Lanes)
	}
	r := resolver{s: s, lay: lay}
	if err := r.init(); err != nil {
		return nil, err
	}
	pl.windows, pl.scratch = r.windows, r.scratchBytes
	read := p.readOut(&lay)
	for l, groups := range p.lanes {
		var acts []action
		for gi := range groups {
			split := 1
			if c := groups[gi].span().Count; r.windows > 1 && c > 1 {
				split = c
			}
			for i := range split {
				a := r.action(m, &groups[gi], laneBase+l, i, split)
				a.leaves = a.leaving(&groups[gi], read)
				acts = append(acts, a)
			}
		}
		pl.share(m, laneBase+l, acts)
		for i := range acts {
			pl.maxOps = max(pl.maxOps, len(acts[i].operands))
			pl.maxOut = max(pl.maxOut, len(acts[i].sends)+1)
			pl.longest = max(pl.longest, acts[i].bytes)
		}
		pl.lanes = append(pl.lanes, acts)
	}
	pl.small, pl.brief, pl.piece = pl.fitsInline(), pl.fitsSlot(m), PieceBytes
	pl.single = (pl.small || pl.brief) && len(pl.lanes) == 1 && len(pl.lanes[0]) > 0 && pl.scratch == 0 && !lay.Pairwise
	if s.Collective == 0 && !m.NeedsProgress() && pl.lanes[0][0].bytes <= cutMost {
		pl.piece = cutBytes
	}
	return pl, nil
}

// share lets actions that send to several peers copy what they send once, if all of the lane send to the same.
func (p *Plan) share(m *link.Mesh, lane int, acts []action) {
	var to []*link.Peer
	for i := range acts {
		if a := &acts[i]; len(a.sends) > 1 {
			if to != nil && !samePeers(to, a.sendTo) {
				return
			}
			to = a.sendTo
		}
	}
	if to == nil {
		return
	}
	s := m.Share(lane, to)
	for i := range acts {
		if len(acts[i].sends) > 1 {
			acts[i].shared = s
		}
	}
}

func samePeers(a, b []*link.Peer) bool {
	if len(a) != len(b) {
		return false
	}
	for _, p := range a {
		if !slices.Contains(b, p) {
			return false
		}
	}
	return true
}

// resolver turns spans into extents.
type resolver struct {
	s            *schedule.Schedule
	lay          Layout
	in, out      []block
	windows      int
	scratchAt    []int // offset of each scratch chunk
	scratchBytes int
}

func (r *resolver) init() error {
	blocks := func(counts []int, chunks int, name string) ([]block, error) {
		if (len(counts) == 0) != (chunks == 0) || len(counts) > 0 && chunks%len(counts) != 0 {
			return nil, fmt.Errorf("executor: %d chunks of %s in %d blocks", chunks, name, len(counts))
		}
		bs, off := make([]block, len(counts)), 0
		for i, c := range counts {
			bs[i] = block{off * r.lay.Elem, c * r.lay.Elem}
			off += c
		}
		return bs, nil
	}
	var err error
	if r.in, err = blocks(r.lay.In, r.s.In, "In"); err != nil {
		return err
	}
	if r.out, err = blocks(r.lay.Out, r.s.Out, "Out"); err != nil {
		return err
	}
	r.windows = 1
	if r.lay.Window > 0 {
		longest := r.lay.Longest
		for _, c := range append(append([]int(nil), r.lay.In...), r.lay.Out...) {
			longest = max(longest, c)
		}
		side := schedule.In
		if r.s.In == 0 {
			side = schedule.Out
		}
		per := r.lay.Window * r.parts(side)
		r.windows = max(1, (longest+per-1)/per)
	}
	for _, c := range r.s.Scratch {
		e := r.chunk(c.Buf, c.Index)
		r.scratchAt = append(r.scratchAt, r.scratchBytes)
		r.scratchBytes += e.size
		if r.windows > 1 {
			r.scratchBytes = (r.scratchBytes + 63) &^ 63
		}
	}
	return nil
}

// parts is the number of chunks in a block of b.
func (r *resolver) parts(b schedule.Buf) int {
	if b == schedule.In {
		return r.s.In / len(r.in)
	}
	return r.s.Out / len(r.out)
}

// chunk is the extent of one chunk of In or Out.
func (r *resolver) chunk(b schedule.Buf, i int) extent {
	blks := r.in
	if b == schedule.Out {
		blks = r.out
	}
	k := r.parts(b)
	e := extent{buf: b, blk: blks[i/k], chunk: i % k, parts: k}
	per := e.blk.length // bytes of a full window of the block
	if r.windows > 1 {
		per = r.lay.Window * k * r.lay.Elem
	}
	e.step = per
	if per > 0 {
		e.full = e.blk.length / per
	} else {
		e.full = r.windows
	}
	lo, hi := tensor.Part(per/r.lay.Elem, k, e.chunk)
	e.offset, e.size = e.blk.offset+lo*r.lay.Elem, (hi-lo)*r.lay.Elem
	return e
}

// span is the extent of chunks [first, first+count) of a span, which are contiguous: a single
// chunk, or all in one window.
func (r *resolver) span(sp schedule.Span, first, count int) extent {
	one := func(i int) extent {
		if sp.Buf == schedule.Scratch {
			c := r.s.Scratch[i]
			e := r.chunk(c.Buf, c.Index)
			e.buf = schedule.Scratch
			e.blk.offset = 0
			e.offset = r.scratchAt[i]
			return e
		}
		return r.chunk(sp.Buf, i)
	}
	e := one(first)
	for i := first + 1; i < first+count; i++ {
		e.size += one(i).size
	}
	return e
}

// at returns offset and length of an extent in window w.
func (e *extent) at(w, elem int) (off, size int) {
	if w < e.full {
		if e.buf == schedule.Scratch {
			return e.offset, e.size
		}
		return e.offset + w*e.step, e.size
	}
	lo := min(w*e.step, e.blk.length)
	rest := min(e.step, e.blk.length-lo)
	a, b := tensor.Part(rest/elem, e.parts, e.chunk)
	if e.buf == schedule.Scratch {
		return e.offset, (b - a) * elem
	}
	return e.blk.offset + lo + a*elem, (b - a) * elem
}

func (r *resolver) action(m *link.Mesh, g *group, lane, part, split int) action {
	pick := func(sp schedule.Span) extent {
		if split > 1 {
			return r.span(sp, sp.First+part, 1)
		}
		return r.span(sp, sp.First, sp.Count)
	}
	a := action{final: g.final, steps: g.End, store: !g.Transient}
	if part == 0 {
		a.after = g.after
	}
	if part != split-1 {
		a.steps = 0 // the group's steps are done with its last part
	}
	if g.Dst.Buf != schedule.None {
		a.dst, a.hasDst = pick(g.Dst), true
		a.length = a.dst
	}
	for _, o := range g.operands {
		a.nested = a.nested || o.left
		if o.recv {
			p := m.Peer(o.peer)
			a.operands = append(a.operands, source{recv: len(a.receives), left: o.left})
			a.receives, a.recvFrom = append(a.receives, p.Receiver(lane)), append(a.recvFrom, p)
			continue
		}
		a.operands = append(a.operands, source{recv: -1, left: o.left, ext: pick(o.span)})
		if !a.hasDst {
			a.length = a.operands[0].ext
		}
	}
	for _, peer := range g.sends {
		p := m.Peer(peer)
		a.sends, a.sendTo = append(a.sends, p.Sender(lane)), append(a.sendTo, p)
	}
	_, a.bytes = a.length.at(0, r.lay.Elem)
	a.placeable = r.s.Early && g.final && g.Dst.Buf == schedule.Out && len(g.sends) > 0
	a.lendable = r.s.Lazy && !a.hasDst && a.operands[0].ext.buf != schedule.Scratch
	if len(a.operands) == 1 && len(a.receives) == 1 && g.Dst.Buf == schedule.Out && a.keeps() {
		a.lands, _ = a.receives[0].(link.DirectReceiver)
	}
	a.lazy = r.s.Lazy
	a.easy = a.bytes <= m.PutBytes() && !r.lay.Pairwise && len(a.operands) == 1 && (len(a.receives) == 0 || len(a.receives) == 1 && a.hasDst && len(a.sends) == 0)
	a.direct = a.lendable || a.lazy && a.hasDst && a.store && g.Dst.Buf == schedule.Out ||
		!a.hasDst && a.operands[0].ext.buf == schedule.In
	a.direct = a.direct && len(a.sends) > 0
	return a
}
