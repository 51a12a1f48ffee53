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
// whether the schedule could be Early and Lazy.
type Order struct {
	layout
	clocks [][]uint32 // clocks[l][m]: how many units of lane m lane l knows to be over
	cells  []cell
	queues []queue[message]
	free   [][]uint32
	marks  marks[[]uint32]
	race   error
	early  error
	lazy   error
	both   error
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
	clock   []uint32
	place   int // of Src; −1: never written
	version uint32
}

// NewOrder makes a handler for one run of p, with unlimited slots.
func NewOrder(p *Program, windows int, inPlace bool) *Order {
	l := newLayout(p, windows, inPlace)
	o := &Order{
		layout: l,
		clocks: make([][]uint32, len(p.Lanes)),
		cells:  make([]cell, l.places()),
		queues: make([]queue[message], len(p.Links)),
		marks:  newMarks[[]uint32](p, l.windows),
	}
	n := len(p.Lanes)
	all := make([]uint32, n*n)
	for i := range o.clocks {
		o.clocks[i] = all[i*n : (i+1)*n]
	}
	return o
}

// Err is the first race.
func (o *Order) Err() error { return o.race }

// Early is nil if data for every Recv could land as soon as it is sent.
func (o *Order) Early() error { return o.early }

// Lazy is nil if the Src of every Send could be read as late as the receiver's step.
func (o *Order) Lazy() error { return o.lazy }

// Both is nil if, besides, nothing lands in a chunk that is still lent.
func (o *Order) Both() error { return o.both }

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
	if o.race != nil {
		return
	}
	rank := o.p.Lanes[lane].Rank
	clock := o.clocks[lane]
	clock[lane]++
	src, dst := -1, -1
	if st.SrcBuf != schedule.None {
		src = o.place(rank, st.SrcBuf, int(st.Src)+unit, window)
	}
	if st.DstBuf != schedule.None {
		dst = o.place(rank, st.DstBuf, int(st.Dst)+unit, window)
	}
	at := position{lane, step, window, unit}
	if st.Op.Receives() {
		m := o.queues[st.Link].pop()
		if st.Op == schedule.Recv && !st.more {
			o.landing(at, dst, m.clock)
		}
		o.borrow(at, &o.p.Links[st.Link], m)
		join(clock, m.clock)
		o.free = append(o.free, m.clock)
	}
	goesOn := step > 0 && o.p.Lanes[lane].Steps[step-1].more
	if src >= 0 && !(goesOn && st.Op == schedule.RecvReduce) {
		o.read(at, src)
	}
	if st.Op == schedule.Combine && !goesOn {
		o.read(at, dst)
	}
	// An n-ary step writes when it ends; a Copy that in place has nothing to do writes nothing.
	if dst >= 0 && !st.more && !o.idle(rank, st, unit, window) {
		o.write(at, dst)
	}
	if st.Op == schedule.Send {
		m := message{clock: o.clone(clock), place: src}
		if src >= 0 {
			m.version = o.cells[src].version
		}
		o.queues[st.Link].push(m)
	}
}

type position struct {
	lane, step   int32
	window, unit int
}

func (o *Order) where(at position) string {
	w := o.p.Where(at.lane, at.step)
	if o.windows > 1 {
		w = fmt.Sprintf("window %d %s", at.window, w)
	}
	return w
}

// landing looks whether everything that was done to dst came before the peer's Send.
func (o *Order) landing(at position, dst int, sent []uint32) {
	c := &o.cells[dst]
	busy := c.write.tick > sent[c.write.lane]
	for _, a := range c.reads {
		busy = busy || a.tick > sent[a.lane]
	}
	if busy && o.early == nil {
		o.early = fmt.Errorf("not early: %s: this rank may still be busy with that chunk when the peer has sent", o.where(at))
	}
	for _, a := range c.lent {
		if a.tick > sent[a.lane] && o.both == nil {
			o.both = fmt.Errorf("not early and lazy at once: %s: rank %d may still read that chunk when the peer has sent",
				o.where(at), o.p.Lanes[a.lane].Rank)
		}
	}
}

// borrow notes that the receiver reads the sender's Src only now.
func (o *Order) borrow(at position, k *Link, m message) {
	if o.lazy != nil || m.place < 0 {
		return
	}
	c := &o.cells[m.place]
	if c.version != m.version {
		o.lazy = fmt.Errorf("not lazy: rank %d may overwrite what it lends to %s", k.From, o.where(at))
		return
	}
	c.lent = note(c.lent, access{at.lane, o.clocks[at.lane][at.lane]})
}

func (o *Order) read(at position, place int) {
	c := &o.cells[place]
	if a := c.write; a.tick > o.clocks[at.lane][a.lane] {
		o.race = fmt.Errorf("race: %s reads a chunk that lane %d may be writing", o.where(at), o.p.Lanes[a.lane].Index)
		return
	}
	c.reads = note(c.reads, access{at.lane, o.clocks[at.lane][at.lane]})
}

func (o *Order) write(at position, place int) {
	c, clock := &o.cells[place], o.clocks[at.lane]
	if a := c.write; a.tick > clock[a.lane] {
		o.race = fmt.Errorf("race: %s writes a chunk that lane %d may be writing", o.where(at), o.p.Lanes[a.lane].Index)
		return
	}
	for _, a := range c.reads {
		if a.tick > clock[a.lane] {
			o.race = fmt.Errorf("race: %s writes a chunk that lane %d may be reading", o.where(at), o.p.Lanes[a.lane].Index)
			return
		}
	}
	for _, a := range c.lent {
		if a.tick > clock[a.lane] && o.lazy == nil {
			o.lazy = fmt.Errorf("not lazy: %s overwrites a chunk that rank %d may still be reading", o.where(at), o.p.Lanes[a.lane].Rank)
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
