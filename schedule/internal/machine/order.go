package machine

import (
	"fmt"
	"slices"

	"github.com/gccl/gccl/schedule"
)

// Order finds accesses to one place that nothing puts in order, by vector clocks (Mattern 1989; the
// bookkeeping is that of FastTrack, Flanagan and Freund 2009). Which access happens before which
// follows from the lanes, the Afters and the links alone, so that one run speaks for every
// interleaving. Slots are no excuse: an order that only a lack of slots enforces does not count.
//
// Besides races between the lanes of a rank, and between two windows on Scratch, it finds out
// whether the schedule could be Early and Lazy. It does all of it twice, out of place and in place:
// what happens before what is the same in both, and which accesses meet in one place is not.
type Order struct {
	p       *Program
	windows int
	clocks  [][]uint32 // clocks[l][m]: how many units of lane m lane l knows to be over
	queues  queues[message]
	free    [][]uint32
	marks   marks[[]uint32]
	views   []View
}

// View is the memory of all ranks, out of place or in place, and what is wrong there.
type View struct {
	layout
	cells []cell
	race  error
	early error
	lazy  error
	both  error
}

type access struct {
	lane int32
	tick uint32 // 0: none
}

// cell is the past of one place.
type cell struct {
	write   access
	version uint32   // counts writes
	reads   []access // since that write, the last one of each lane
	lent    []access // reads by receivers, had the Sends lent their Src
}

type message struct {
	clock []uint32
	lent  [2]loan // by view
}

// loan is the Src of a Send, as it was then.
type loan struct {
	place   int // −1: never written
	version uint32
}

// NewOrder makes a handler for one run of p, with unlimited slots. Its views are the ones asked
// for, of which the first stops the run when it finds a race.
func NewOrder(p *Program, windows int, inPlace ...bool) *Order {
	windows = max(windows, 1)
	o := &Order{
		p: p, windows: windows,
		clocks: make([][]uint32, len(p.Lanes)),
		queues: newQueues[message](p, windows),
		marks:  newMarks[[]uint32](p, windows),
	}
	for _, in := range inPlace[:min(len(inPlace), 2)] {
		l := newLayout(p, windows, in)
		o.views = append(o.views, View{layout: l, cells: make([]cell, l.places())})
	}
	n := len(p.Lanes)
	all := make([]uint32, n*n)
	for i := range o.clocks {
		o.clocks[i] = all[i*n : (i+1)*n]
	}
	return o
}

// View is the i'th of those that were asked for.
func (o *Order) View(i int) *View { return &o.views[i] }

// Err implements Handler: the first race of the first view.
func (o *Order) Err() error { return o.views[0].race }

// Race is the first race.
func (v *View) Race() error { return v.race }

// Early is nil if data for every Recv could land as soon as it is sent.
func (v *View) Early() error { return v.early }

// Lazy is nil if the Src of every Send could be read as late as the receiver's step.
func (v *View) Lazy() error { return v.lazy }

// Both is nil if, besides, nothing lands in a chunk that is still lent.
func (v *View) Both() error { return v.both }

// Finished implements Handler.
func (o *Order) Finished(lane int32, window, steps int) {
	o.marks.finished(lane, window, steps, func() []uint32 { return slices.Clone(o.clocks[lane]) })
}

// Waited implements Handler.
func (o *Order) Waited(lane int32, window int, st *Step) {
	join(o.clocks[lane], o.marks.at(st, window))
}

// Unit implements Handler.
func (o *Order) Unit(lane, step int32, st *Step, window, unit int) {
	clock := o.clocks[lane]
	clock[lane]++
	at := position{lane, step, window, unit}
	var got, out message
	if st.Op.Receives() {
		got = o.queues.pop(st.Link)
		for i := range o.views {
			if v := &o.views[i]; v.race == nil {
				v.arrives(at, st, &got, i, clock)
			}
		}
		join(clock, got.clock)
		o.free = append(o.free, got.clock)
	}
	for i := range o.views {
		if v := &o.views[i]; v.race == nil {
			out.lent[i] = v.touches(at, st, clock)
		}
	}
	if st.Op == schedule.Send {
		out.clock = o.clone(clock)
		o.queues.push(st.Link, out)
	}
}

// arrives looks at a step that receives, before it learns what the message knows.
func (v *View) arrives(at position, st *Step, m *message, view int, clock []uint32) {
	if st.Op == schedule.Recv && !st.more {
		v.landing(at, v.place(v.p.Lanes[at.lane].Rank, st.DstBuf, int(st.Dst)+at.unit, at.window), m.clock)
	}
	v.borrow(at, &v.p.Links[st.Link], m.lent[view], clock)
}

// touches notes what a step reads and writes.
func (v *View) touches(at position, st *Step, clock []uint32) (lent loan) {
	rank := v.p.Lanes[at.lane].Rank
	src, dst := -1, -1
	if st.SrcBuf != schedule.None {
		src = v.place(rank, st.SrcBuf, int(st.Src)+at.unit, at.window)
	}
	if st.DstBuf != schedule.None {
		dst = v.place(rank, st.DstBuf, int(st.Dst)+at.unit, at.window)
	}
	goesOn := at.step > 0 && v.p.Lanes[at.lane].Steps[at.step-1].more
	if src >= 0 && !(goesOn && st.Op == schedule.RecvReduce) {
		v.read(at, src, clock)
	}
	if st.Op == schedule.Combine && !goesOn {
		v.read(at, dst, clock)
	}
	// An n-ary step writes when it ends; a Copy that in place has nothing to do writes nothing.
	if dst >= 0 && !st.more && !v.idle(rank, st, at.unit, at.window) {
		v.write(at, dst, clock)
	}
	lent.place = src
	if src >= 0 {
		lent.version = v.cells[src].version
	}
	return lent
}

type position struct {
	lane, step   int32
	window, unit int
}

func (v *View) where(at position) string {
	w := v.p.Where(at.lane, at.step)
	if v.windows > 1 {
		w = fmt.Sprintf("window %d %s", at.window, w)
	}
	return w
}

// landing looks whether everything that was done to dst came before the peer's Send.
func (v *View) landing(at position, dst int, sent []uint32) {
	c := &v.cells[dst]
	busy := c.write.tick > sent[c.write.lane]
	for _, a := range c.reads {
		busy = busy || a.tick > sent[a.lane]
	}
	if busy && v.early == nil {
		v.early = fmt.Errorf("not early: %s: this rank may still be busy with that chunk when the peer has sent", v.where(at))
	}
	for _, a := range c.lent {
		if a.tick > sent[a.lane] && v.both == nil {
			v.both = fmt.Errorf("not early and lazy at once: %s: rank %d may still read that chunk when the peer has sent",
				v.where(at), v.p.Lanes[a.lane].Rank)
		}
	}
}

// borrow notes that the receiver reads the sender's Src only now.
func (v *View) borrow(at position, k *Link, m loan, clock []uint32) {
	if v.lazy != nil || m.place < 0 {
		return
	}
	c := &v.cells[m.place]
	if c.version != m.version {
		v.lazy = fmt.Errorf("not lazy: rank %d may overwrite what it lends to %s", k.From, v.where(at))
		return
	}
	c.lent = note(c.lent, access{at.lane, clock[at.lane]})
}

func (v *View) read(at position, place int, clock []uint32) {
	c := &v.cells[place]
	if a := c.write; a.tick > clock[a.lane] {
		v.race = fmt.Errorf("race: %s reads a chunk that lane %d may be writing", v.where(at), v.p.Lanes[a.lane].Index)
		return
	}
	c.reads = note(c.reads, access{at.lane, clock[at.lane]})
}

func (v *View) write(at position, place int, clock []uint32) {
	c := &v.cells[place]
	if a := c.write; a.tick > clock[a.lane] {
		v.race = fmt.Errorf("race: %s writes a chunk that lane %d may be writing", v.where(at), v.p.Lanes[a.lane].Index)
		return
	}
	for _, a := range c.reads {
		if a.tick > clock[a.lane] {
			v.race = fmt.Errorf("race: %s writes a chunk that lane %d may be reading", v.where(at), v.p.Lanes[a.lane].Index)
			return
		}
	}
	for _, a := range c.lent {
		if a.tick > clock[a.lane] && v.lazy == nil {
			v.lazy = fmt.Errorf("not lazy: %s overwrites a chunk that rank %d may still be reading", v.where(at), v.p.Lanes[a.lane].Rank)
		}
	}
	c.write = access{at.lane, clock[at.lane]}
	c.version++
	c.reads, c.lent = c.reads[:0], c.lent[:0]
}

// note keeps the last access of each lane.
func note(list []access, a access) []access {
	for i := range list {
		if list[i].lane == a.lane {
			list[i].tick = a.tick
			return list
		}
	}
	return append(list, a)
}

func (o *Order) clone(clock []uint32) []uint32 {
	if n := len(o.free); n > 0 {
		c := o.free[n-1]
		o.free = o.free[:n-1]
		copy(c, clock)
		return c
	}
	return slices.Clone(clock)
}

func join(to, from []uint32) {
	for i, t := range from[:len(to)] {
		to[i] = max(to[i], t)
	}
}
