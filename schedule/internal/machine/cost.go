package machine

import (
	"slices"

	"github.com/gccl/gccl/schedule"
)

// Cost measures one window of a program on ideal links, in three ways that differ in what a lane
// can do at once. Nothing but sending takes time.
type Cost struct {
	p       *Program
	now     []clock // by lane
	sent    []int   // by rank: chunks
	reduced []int   // by rank: chunks
	queues  queues[clock]
	marks   marks[clock]
}

// clock counts what lies behind on the longest chain.
type clock struct {
	messages int // messages that wait for one another
	sends    int // messages, where a lane sends one at a time
	chunks   int // chunks, where a lane sends one at a time
}

// NewCost makes a handler for one run with unlimited slots, of which it sees the first window.
func NewCost(p *Program) *Cost {
	return &Cost{
		p: p, now: make([]clock, len(p.Lanes)),
		sent: make([]int, len(p.Heads)), reduced: make([]int, len(p.Heads)),
		queues: newQueues[clock](p, 1), marks: newMarks[clock](p, 1),
	}
}

// Unit implements Handler.
func (c *Cost) Unit(lane, _ int32, st *Step, window, unit int) {
	if window > 0 {
		return
	}
	now, rank := &c.now[lane], c.p.Lanes[lane].Rank
	switch {
	case st.Op == schedule.Send:
		if unit == 0 {
			now.sends++
		}
		now.chunks++
		c.sent[rank]++
		m := *now
		m.messages++
		c.queues.push(st.Link, m)
	case st.Op.Receives():
		now.join(c.queues.pop(st.Link))
	}
	if st.Op == schedule.RecvReduce || st.Op == schedule.Combine {
		c.reduced[rank]++
	}
}

// Finished implements Handler.
func (c *Cost) Finished(lane int32, window, steps int) {
	if window == 0 {
		c.marks.finished(lane, window, steps, func() clock { return c.now[lane] })
	}
}

// Waited implements Handler.
func (c *Cost) Waited(lane int32, window int, st *Step) {
	if window == 0 {
		c.now[lane].join(c.marks.at(st, window))
	}
}

// Err implements Handler.
func (c *Cost) Err() error { return nil }

func (k *clock) join(o clock) {
	k.messages, k.sends, k.chunks = max(k.messages, o.messages), max(k.sends, o.sends), max(k.chunks, o.chunks)
}

// Longest is the longest chains: of messages that wait for one another; of messages and of chunks
// if a lane sends one after the other (the one-port model of the literature, with a port a lane).
func (c *Cost) Longest() (messages, sends, chunks int) {
	var k clock
	for _, now := range c.now {
		k.join(now)
	}
	return k.messages, k.sends, k.chunks
}

// Busiest is the most chunks that one rank sends, and that one rank reduces.
func (c *Cost) Busiest() (sent, reduced int) {
	return slices.Max(c.sent), slices.Max(c.reduced)
}
