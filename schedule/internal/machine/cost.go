package machine

import "github.com/gccl/gccl/schedule"

// Cost measures a program on ideal links, where a lane sends one chunk at a time, a chunk takes
// one unit of time whatever its size, and nothing else takes time (the one-port model of the
// literature, with a port a lane).
type Cost struct {
	p     *Program
	times []int // by lane: chunk times
	steps []int // by lane: Sends, whatever their counts
	sent  []int // by rank: chunks
	queue []queue[[2]int]
	marks marks[[2]int]
}

// NewCost makes a handler for one run of one window with unlimited slots.
func NewCost(p *Program) *Cost {
	return &Cost{
		p: p, times: make([]int, len(p.Lanes)), steps: make([]int, len(p.Lanes)),
		sent: make([]int, len(p.Heads)), queue: make([]queue[[2]int], len(p.Links)), marks: newMarks[[2]int](p, 1),
	}
}

// Unit implements Handler.
func (c *Cost) Unit(lane, _ int32, st *Step, window, unit int) {
	if window > 0 {
		return
	}
	switch {
	case st.Op == schedule.Send:
		if unit == 0 {
			c.steps[lane]++
		}
		c.times[lane]++
		c.sent[c.p.Lanes[lane].Rank]++
		c.queue[st.Link].push([2]int{c.steps[lane], c.times[lane]})
	case st.Op.Receives():
		m := c.queue[st.Link].pop()
		c.steps[lane], c.times[lane] = max(c.steps[lane], m[0]), max(c.times[lane], m[1])
	}
}

// Finished implements Handler.
func (c *Cost) Finished(lane int32, window, steps int) {
	if window == 0 {
		c.marks.finished(lane, window, steps, func() [2]int { return [2]int{c.steps[lane], c.times[lane]} })
	}
}

// Waited implements Handler.
func (c *Cost) Waited(lane int32, window int, st *Step) {
	if window == 0 {
		m := c.marks.at(st, window)
		c.steps[lane], c.times[lane] = max(c.steps[lane], m[0]), max(c.times[lane], m[1])
	}
}

// Err implements Handler.
func (c *Cost) Err() error { return nil }

// Steps is the number of Sends on the longest chain.
func (c *Cost) Steps() int { return most(c.steps) }

// ChunkTimes is the number of chunks on the longest chain.
func (c *Cost) ChunkTimes() int { return most(c.times) }

// Sent is the number of chunks that the busiest rank sends.
func (c *Cost) Sent() int { return most(c.sent) }

func most(list []int) int {
	m := 0
	for _, x := range list {
		m = max(m, x)
	}
	return m
}
