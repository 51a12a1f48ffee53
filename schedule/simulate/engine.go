package simulate

import (
	"fmt"
	"math"

	"github.com/gccl/gccl/schedule"
)

// engine plays a program. Times are seconds.
type engine struct {
	prog    *program
	p       *Params
	trace   *Trace
	windows int
	chunk   float64 // bytes of a chunk in one window
	longest float64
	played  int64
	events  events
	lanes   []laneState
	links   []linkState
	cores   []float64 // by rank: when it is free
	out, in []float64 // by rank: when its ports are free
	hosts   map[int]*[2]float64
	network float64 // when the switch is free
	end     float64
}

type laneState struct {
	window   int32
	group    int32
	first    int32 // step of that group
	segment  int32 // next one of the group
	finished int64 // steps, over all windows
	began    float64
	done     bool
	queued   bool
}

type linkState struct {
	sent     fifo // lengths of segments that have not left the sender's host
	flying   fifo // lengths of segments that have not reached the receiver
	arrivals fifo // of segments that the receiver has not taken
	credits  fifo // of slots that come back
	inUse    int  // slots
	receiver bool // the consumer waits for data
	sender   bool // the producer waits for a slot
}

// fifo holds times or lengths in order.
type fifo struct {
	times []float64
	head  int
}

func (f *fifo) push(t float64) {
	if f.head == len(f.times) {
		f.times, f.head = f.times[:0], 0
	}
	f.times = append(f.times, t)
}

func (f *fifo) empty() bool    { return f.head == len(f.times) }
func (f *fifo) first() float64 { return f.times[f.head] }
func (f *fifo) pop()           { f.head++ }

func newEngine(prog *program, p *Params, bytes float64, trace *Trace) *engine {
	e := &engine{
		prog: prog, p: p, trace: trace, windows: 1,
		lanes: make([]laneState, len(prog.lanes)), links: make([]linkState, len(prog.links)),
		cores: make([]float64, prog.ranks), out: make([]float64, prog.ranks), in: make([]float64, prog.ranks),
		hosts: make(map[int]*[2]float64),
	}
	chunk := bytes / float64(max(prog.chunks, 1))
	if prog.ahead > 0 {
		// What a sender runs ahead must fit into all slots but one (schedule.Schedule.MaxSegments).
		// Short chunks of one span share segments.
		most := float64(p.Slots-1) / float64(prog.ahead) * float64(p.Segment)
		e.windows = max(1, int(math.Ceil(chunk/most)))
	}
	e.chunk = chunk / float64(e.windows)
	return e
}

// bytes is the length of a segment of a step, and how many segments the step has.
func (e *engine) bytes(count int32) (length float64, segments int32) {
	total := float64(count) * e.chunk
	n := max(1, math.Ceil(total/float64(e.p.Segment)))
	return total / n, int32(n)
}

func (e *engine) run() (float64, error) {
	for l := range e.lanes {
		if len(e.prog.lanes[l].steps) == 0 {
			e.lanes[l].done = true
			continue
		}
		e.wake(int32(l), 0)
	}
	if e.prog.ahead > 0 && e.p.Slots < 2 {
		return 0, fmt.Errorf("one slot is too few for a schedule in which all send first")
	}
	for len(e.events.heap) > 0 {
		switch ev := e.events.pop(); ev.kind {
		case laneRuns:
			e.lanes[ev.id].queued = false
			e.advance(ev.id, ev.time)
		case leavesRank:
			e.leave(ev.id, ev.time)
		case reachesRank:
			e.arrive(ev.id, ev.time)
		}
	}
	for l := range e.lanes {
		if !e.lanes[l].done {
			ln := &e.prog.lanes[l]
			return 0, fmt.Errorf("rank %d lane %d waits for ever at step %d", ln.rank, ln.index, e.lanes[l].first)
		}
	}
	return e.end, nil
}

func (e *engine) wake(l int32, at float64) {
	if !e.lanes[l].queued && !e.lanes[l].done {
		e.lanes[l].queued = true
		e.events.push(at, laneRuns, l)
	}
}

// advance plays the next segment of a lane if it can move at this time, or sees to it that the lane
// is woken when that may have changed.
func (e *engine) advance(l int32, now float64) {
	ln, prog := &e.lanes[l], &e.prog.lanes[l]
	group := prog.steps[ln.first:prog.groups[ln.group]]
	if at, ok := e.ready(l, group, now); !ok {
		if at > now {
			e.wake(l, at)
		}
		return
	}
	rank := prog.rank
	if free := e.cores[rank]; free > now {
		e.wake(l, free)
		return
	}
	length, segments := e.bytes(group[0].count)
	e.longest = max(e.longest, length)
	if ln.segment == 0 {
		ln.began = now
	}
	done := now + e.work(group, length)
	e.cores[rank] = done
	last := done
	for i := range group {
		st := &group[i]
		switch {
		case st.link < 0:
		case st.op == schedule.Send:
			last = max(last, e.send(st.link, length, done))
		default:
			e.take(st.link, done)
		}
		e.played++
	}
	e.end = max(e.end, done)
	if ln.segment++; ln.segment == segments {
		if e.trace != nil {
			e.trace.add(e, l, ln, ln.began, last)
		}
		e.next(l, ln, prog, done)
		if ln.done {
			return
		}
	}
	e.wake(l, done)
}

// ready tells whether the group can move a segment now; if not, at a later time if that is known.
func (e *engine) ready(l int32, group []step, now float64) (at float64, ok bool) {
	ln := &e.lanes[l]
	if st := &group[0]; st.afterSteps > 0 {
		other := &e.lanes[st.afterLane]
		if other.finished < int64(ln.window)*int64(len(e.prog.lanes[st.afterLane].steps))+int64(st.afterSteps) {
			return 0, false // that lane wakes this one
		}
	}
	for i := range group {
		st := &group[i]
		if st.link < 0 {
			continue
		}
		k := &e.links[st.link]
		if st.op != schedule.Send {
			if k.arrivals.empty() {
				k.receiver = true
				return 0, false
			}
			at = max(at, k.arrivals.first())
			continue
		}
		for !k.credits.empty() && k.credits.first() <= now {
			k.credits.pop()
			k.inUse--
		}
		if k.inUse < e.p.Slots {
			continue
		}
		if k.credits.empty() {
			k.sender = true
			return 0, false
		}
		at = max(at, k.credits.first())
	}
	return at, at <= now
}

// work is how long the rank's core is busy with a segment of the group. What a group copies and then reduces
// into is an operand of one pass, as the executor has it, and costs no pass of its own.
func (e *engine) work(group []step, length float64) float64 {
	t := float64(len(group)) * e.p.Overhead.Seconds()
	for i := range group {
		st := &group[i]
		switch st.op {
		case schedule.RecvReduce, schedule.Combine:
			t += length * perByte(e.p.Reduce)
		case schedule.Copy:
			if i+1 == len(group) || group[i+1].op == schedule.Send {
				t += length * perByte(e.p.Copy)
			}
		}
		if st.link < 0 {
			continue
		}
		path, _ := e.path(&e.prog.links[st.link])
		if st.op == schedule.Send {
			t += length * perByte(path.Put)
		} else {
			t += length * perByte(path.Take)
		}
	}
	return t
}

// path is the way of a link, and whether it leaves the host.
func (e *engine) path(k *link) (path *Path, net bool) {
	if k.local {
		return &e.p.Local, false
	}
	return &e.p.Net, true
}

// send gives a segment to the rank's port and returns when that has passed it on.
func (e *engine) send(id int32, length, now float64) float64 {
	k, prog := &e.links[id], &e.prog.links[id]
	path, _ := e.path(prog)
	begin := max(now, e.out[prog.from])
	e.out[prog.from] = begin + length*perByte(path.Bandwidth)
	k.inUse++
	k.sent.push(length)
	e.events.push(begin, leavesRank, id)
	return e.out[prog.from]
}

// leave takes a segment from its rank through the ports of the host and the switch.
func (e *engine) leave(id int32, now float64) {
	k, prog := &e.links[id], &e.prog.links[id]
	path, net := e.path(prog)
	length := k.sent.first()
	k.sent.pop()
	begin := now
	if net {
		begin = e.share(prog.from, 0, begin, length)
		if e.p.SwitchBandwidth > 0 {
			begin = max(begin, e.network)
			e.network = begin + length*perByte(e.p.SwitchBandwidth)
		}
	}
	k.flying.push(length)
	e.events.push(begin+path.Latency.Seconds(), reachesRank, id)
}

// arrive takes a segment, whose first byte is here, through the ports of the receiver.
func (e *engine) arrive(id int32, now float64) {
	k, prog := &e.links[id], &e.prog.links[id]
	path, net := e.path(prog)
	length := k.flying.first()
	k.flying.pop()
	begin := max(now, e.in[prog.to])
	slowest := perByte(path.Bandwidth)
	if net {
		begin = e.share(prog.to, 1, begin, length)
		slowest = max(slowest, perByte(e.p.HostBandwidth), perByte(e.p.SwitchBandwidth))
	}
	end := begin + length*slowest
	e.in[prog.to] = begin + length*perByte(path.Bandwidth)
	k.arrivals.push(end)
	e.end = max(e.end, end)
	if k.receiver {
		k.receiver = false
		e.wake(prog.consumer, end)
	}
}

// share books the ports of a rank's host, outwards (0) or inwards (1), from a time on, and returns
// when the transfer can begin.
func (e *engine) share(rank int32, way int, from, length float64) float64 {
	if e.p.HostBandwidth == 0 {
		return from
	}
	h := e.p.host(int(rank))
	ports, ok := e.hosts[h]
	if !ok {
		ports = new([2]float64)
		e.hosts[h] = ports
	}
	begin := max(from, ports[way])
	ports[way] = begin + length*perByte(e.p.HostBandwidth)
	return begin
}

// take frees the slot of the segment that was just consumed; the sender hears of it one latency
// later.
func (e *engine) take(id int32, now float64) {
	k, prog := &e.links[id], &e.prog.links[id]
	path, _ := e.path(prog)
	k.arrivals.pop()
	back := now + path.Latency.Seconds()
	k.credits.push(back)
	if k.sender {
		k.sender = false
		e.wake(prog.producer, back)
	}
}

// next moves a lane past a finished group.
func (e *engine) next(l int32, ln *laneState, prog *lane, now float64) {
	ln.finished += int64(prog.groups[ln.group] - ln.first)
	ln.first, ln.segment = prog.groups[ln.group], 0
	if ln.group++; int(ln.group) == len(prog.groups) {
		ln.group, ln.first = 0, 0
		ln.window++
		ln.done = int(ln.window) == e.windows
	}
	for _, w := range prog.waiters {
		e.wake(w, now)
	}
}
