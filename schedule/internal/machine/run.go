package machine

import (
	"fmt"
	"strings"

	"github.com/gccl/gccl/schedule"
)

// Config says on what kind of links a program runs.
type Config struct {
	Slots    int  // per link; 0: as many as are needed
	Segments int  // per chunk; 0 means 1. Segments other than 1 are for runs without handlers
	Windows  int  // replays one after the other, without a barrier between them; 0 means 1
	Fused    bool // run the groups of schedule.Fuse as streamed steps
}

// Handler sees a run happen. A unit is one chunk of a step's span; the units of a streamed group
// alternate: the first unit of every step, then the second of every step.
type Handler interface {
	// Unit is called when the unit'th chunk of a step moves.
	Unit(lane, step int32, st *Step, window, unit int)
	// Finished is called when the first steps steps of a lane have finished in this window.
	Finished(lane int32, window, steps int)
	// Waited is called before the first unit of a step whose After is fulfilled.
	Waited(lane int32, window int, st *Step)
	// Err stops the run when it is not nil.
	Err() error
}

// Run plays the program and returns nil when every lane has finished and every link is empty, a
// *[Deadlock], or the first error of a handler.
func Run(p *Program, cfg Config, handlers ...Handler) error {
	r := &runner{
		p: p, cfg: cfg, handlers: handlers,
		lanes: make([]laneState, len(p.Lanes)),
		links: make([]linkState, len(p.Links)),
		ready: make([]int32, 0, len(p.Lanes)),
	}
	r.slots, r.segments, r.windows = uint64(cfg.Slots), int64(max(cfg.Segments, 1)), max(cfg.Windows, 1)
	for l := len(p.Lanes) - 1; l >= 0; l-- {
		r.ready = append(r.ready, int32(l))
	}
	for len(r.ready) > 0 {
		l := r.ready[len(r.ready)-1]
		r.ready = r.ready[:len(r.ready)-1]
		r.lanes[l].waiting = r.advance(l)
		if r.err != nil {
			return r.err
		}
	}
	return r.end()
}

type runner struct {
	p        *Program
	cfg      Config
	handlers []Handler
	slots    uint64
	segments int64
	windows  int
	lanes    []laneState
	links    []linkState
	ready    []int32
	err      error
}

type laneState struct {
	window  int
	group   int32 // next group, or next step when not fused
	step    int32 // first step of that group
	unit    int64 // segments of it that have moved
	done    int64 // finished steps, over all windows
	waiting bool
	finish  bool
}

type linkState struct{ sent, received uint64 } // segments

// advance moves a lane as far as it goes, and tells whether it waits for something.
func (r *runner) advance(l int32) bool {
	ln, lane := &r.lanes[l], &r.p.Lanes[l]
	for {
		if int(ln.step) == len(lane.Steps) {
			ln.window++
			ln.group, ln.step = 0, 0
			if ln.window >= r.windows || len(lane.Steps) == 0 {
				ln.finish = true
				return false
			}
		}
		end := ln.step + 1
		if r.cfg.Fused {
			end = lane.groups[ln.group]
		}
		group := lane.Steps[ln.step:end]
		n, _, _ := r.room(ln, group)
		if n == 0 {
			return true
		}
		r.move(l, ln, group, n)
		if r.err != nil {
			return false
		}
	}
}

// room is how many segments of the group can move now. If none can, it says which step holds them
// up and whether by its After.
func (r *runner) room(ln *laneState, group []Step) (n int64, by int, after bool) {
	st := &group[0]
	if st.AfterSteps > 0 {
		lane := &r.p.Lanes[st.AfterLane]
		if r.lanes[st.AfterLane].done < int64(ln.window)*int64(len(lane.Steps))+int64(st.AfterSteps) {
			return 0, 0, true
		}
	}
	n = int64(st.Count)*r.segments - ln.unit
	for i := range group {
		st := &group[i]
		if st.Link < 0 {
			continue
		}
		k := &r.links[st.Link]
		if st.Op != schedule.Send {
			n = min(n, int64(k.sent-k.received))
		} else if r.slots > 0 {
			n = min(n, int64(r.slots-(k.sent-k.received)))
		}
		if n == 0 {
			return 0, i, false
		}
	}
	return n, 0, false
}

func (r *runner) move(l int32, ln *laneState, group []Step, n int64) {
	if len(r.handlers) > 0 {
		r.tell(l, ln, group, n)
	}
	for i := range group {
		st := &group[i]
		if st.Link < 0 {
			continue
		}
		k := &r.links[st.Link]
		if st.Op == schedule.Send {
			k.sent += uint64(n)
			r.wake(r.p.Links[st.Link].consumer)
		} else {
			k.received += uint64(n)
			r.wake(r.p.Links[st.Link].producer)
		}
	}
	ln.unit += n
	if ln.unit < int64(group[0].Count)*r.segments {
		return
	}
	ln.unit = 0
	ln.group++
	ln.step += int32(len(group))
	ln.done += int64(len(group))
	for _, h := range r.handlers {
		h.Finished(l, ln.window, int(ln.step))
	}
	for _, w := range r.p.Lanes[l].waiters {
		r.wake(w)
	}
}

// tell shows the handlers what moves, unit by unit.
func (r *runner) tell(l int32, ln *laneState, group []Step, n int64) {
	for _, h := range r.handlers {
		if ln.unit == 0 && group[0].AfterSteps > 0 {
			h.Waited(l, ln.window, &group[0])
		}
		for u := ln.unit; u < ln.unit+n; u++ {
			for i := range group {
				h.Unit(l, ln.step+int32(i), &group[i], ln.window, int(u))
			}
		}
		if r.err = h.Err(); r.err != nil {
			return
		}
	}
}

func (r *runner) wake(l int32) {
	if l >= 0 && r.lanes[l].waiting {
		r.lanes[l].waiting = false
		r.ready = append(r.ready, l)
	}
}

// Deadlock is a state from which no lane can go on.
type Deadlock struct {
	Config
	Waits []string // what the lanes wait for: a circle of them, or a chain to a lane that is done
}

// Error tells who waits for whom.
func (d *Deadlock) Error() string {
	mode := "step by step"
	if d.Fused {
		mode = "fused"
	}
	return fmt.Sprintf("deadlock with %d slots, %d segments a chunk, %s: %s",
		d.Slots, max(d.Segments, 1), mode, strings.Join(d.Waits, "; "))
}

func (r *runner) end() error {
	for l := range r.lanes {
		if !r.lanes[l].finish {
			return &Deadlock{Config: r.cfg, Waits: r.circle(int32(l))}
		}
	}
	for i, k := range r.links {
		if k.sent != k.received {
			return fmt.Errorf("link %d→%d is not empty at the end: %d sent, %d received",
				r.p.Links[i].From, r.p.Links[i].To, k.sent, k.received)
		}
	}
	return nil
}

// circle follows the waiting from lane l until it comes back or ends.
func (r *runner) circle(l int32) []string {
	const most = 8
	seen := make(map[int32]int)
	var waits []string
	for l >= 0 && !r.lanes[l].finish {
		if at, ok := seen[l]; ok {
			waits = waits[at:]
			break
		}
		seen[l] = len(waits)
		text, next := r.waitsFor(l)
		waits = append(waits, text)
		l = next
	}
	if len(waits) > most {
		waits = append(waits[:most:most], fmt.Sprintf("… %d more", len(waits)-most))
	}
	return waits
}

func (r *runner) waitsFor(l int32) (string, int32) {
	ln, lane := &r.lanes[l], &r.p.Lanes[l]
	end := ln.step + 1
	if r.cfg.Fused {
		end = lane.groups[ln.group]
	}
	_, by, after := r.room(ln, lane.Steps[ln.step:end])
	st := &lane.Steps[ln.step+int32(by)]
	where := r.p.Where(l, ln.step+int32(by))
	if r.windows > 1 {
		where = fmt.Sprintf("window %d %s", ln.window, where)
	}
	switch {
	case after:
		return fmt.Sprintf("%s waits for %d steps of lane %d", where, st.AfterSteps, r.p.Lanes[st.AfterLane].Index), st.AfterLane
	case st.Op == schedule.Send:
		return where + " waits for a slot", r.p.Links[st.Link].consumer
	default:
		return where + " waits for data", r.p.Links[st.Link].producer
	}
}
