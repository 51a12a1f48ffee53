package executor

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// PieceBytes bounds what one kernel call works on, so that no call holds up the garbage collector
// or other lanes for long. A message is no longer, whatever its slot would hold.
const PieceBytes = 512 << 10

// Single transfers of up to cutMost bytes over mapped memory go in pieces of cutBytes: the receiver copies one
// out while the sender copies the next in (measured: 256 KiB in 16 for 19 µs; longer ones fill a slot at a
// time and overlap anyway). Schedules know how many messages may be under way, and are not cut.
const (
	cutBytes = 64 << 10
	cutMost  = 512 << 10
)

// Args are the buffers of one run of a plan.
type Args struct {
	In, Out []byte
	// InPlace and OutPlace name the buffers to peers, if they lie in registered memory that every
	// rank has mapped (link.Peer.SetWindow); the zero Place: they do not.
	InPlace, OutPlace link.Place
	// Reducer is nil where nothing is reduced.
	Reducer *tensor.Reducer
	Call    link.Call
	// AttachMin is the shortest transfer, in bytes, that this rank lends in ordinary memory to peers that read it there
	// (link.Peer.Attached); 0: it lends none.
	AttachMin int
	// Stage, if not nil, fills In and empties Out while the run goes on.
	Stage Stage
}

// Job is a plan to run on buffers. Several run at once if they use different links; a job that uses
// links of another waits for it.
type Job struct {
	Plan *Plan
	Args Args
	// After, if not nil, is a job of the same run that must have finished before this one begins.
	After *Job
	left  int // lanes that are not over
	ended int // windows that the stage has been told of
}

// Engine runs plans over the links of one mesh; one goroutine at a time uses it.
type Engine struct {
	mesh      *link.Mesh
	wait      Wait
	wire      bool
	early     bool // memory shows short messages
	canWait   bool // the mesh has one queue to sleep on
	read      atomic.Bool
	borrowed  bool // the run has read what a peer lent of its caller's memory
	lendMin   int
	darts     bool // plans that are single with a dart
	sprints   bool // small plans may begin with a sprint
	scratch   []byte
	lanes     []lane
	solo      lane // of a plan that is single, while it sprints
	transfers []link.Receiver
	stashMax  int
	left      int       // lanes that are not over
	foreseen  int       // lanes before this one have been looked at by foresee
	since     time.Time // when polling in vain began
	waiting   time.Time // when the run first had to wait
	drowsy    bool      // nothing has come since the last sleep
	spun      time.Time // when it was looked at first how long spinning lasts
	tired     bool      // of spinning: nothing has come for longer than that pays
	looks     uint32    // at completion queues
	breathed  time.Time // when it last gave way to other goroutines
	ears      ears
	strayAt   time.Time    // when it last looked for strays
	suspect   *link.Notice // a peer was gone at the last check, and nothing has moved since
	failed    *lane        // whose step failed, or waits for the peer that is gone

	// Lists of the current piece, kept to save allocations.
	srcs [][]byte
	dsts [][]byte
	msgs []*link.Message
	// Temporaries for operands that are scaled.
	blocks    [][]byte
	scaledOps [][]byte
	scaledDst [1][]byte
	pastOps   [][]byte
	pastMem   []byte          // a block on its way past the cache
	copier    *tensor.Reducer // copies bytes past the cache
	stores    []stores        // by peer
	pair      [2][]byte
	far       [][]byte // pieces of messages that are read in their sender's process
}

// lane is the position of one lane of one job.
type lane struct {
	job     *Job
	acts    []action
	scratch []byte
	window  int
	at      int // action
	done    int // bytes of the action's transfer
	size    int // bytes of the action's transfer; −1: not begun
	steps   int // schedule steps finished in this window
	placed  int // sends of the finished transfer whose notice has been sent
	first   int // index of the job's lane 0 in Engine.lanes
	answers [][]byte
	call    link.Call // what messages of the action carry
	lent    bool
	told    bool // the link knows where the action's transfer goes
	over    bool
	held    bool // the stage has not brought the window yet
}

// Options of an engine.
type Options struct {
	Wait Wait
	// LendMin is the shortest transfer, in bytes, that is lent and not copied.
	LendMin int
	// Transfers are the receiving halves of the lane of single transfers. What arrives there unasked
	// is copied to memory, of which up to StashMax bytes are held.
	Transfers []link.Receiver
	StashMax  int
}

// New returns an engine for a connected mesh.
func New(m *link.Mesh, o Options) *Engine {
	copier, err := tensor.NewReducer(tensor.Uint8, tensor.Max, 1)
	if err != nil {
		panic(err) // the maximum of bytes exists
	}
	e := &Engine{mesh: m, wait: o.Wait, lendMin: max(1, o.LendMin), stashMax: o.StashMax,
		copier: copier, stores: make([]stores, m.Size())}
	e.Joined(o.Transfers...)
	return e
}

// Joined tells the engine that peers have joined the mesh, with the receiving halves of their lanes of
// single transfers (Options.Transfers).
func (e *Engine) Joined(transfers ...link.Receiver) {
	e.transfers = append(e.transfers, transfers...)
	e.wire, e.early, e.canWait = e.mesh.NeedsProgress(), e.mesh.Early(), e.mesh.CanWait()
	e.sprints = e.lendMin > link.InlineBytes && e.wait.Spins > 0
	e.darts = e.sprints || e.lendMin > link.InlineBytes && !e.wire
}

// Run replays the jobs' plans until all have finished: every received byte is in place, every lent
// span is released, and nothing waits for this rank to poll. On an error the links are in an
// undefined state and the mesh must be failed. timeout, if positive, bounds it beside ctx; it is
// counted from when the run first has to wait.
func (e *Engine) Run(ctx context.Context, timeout time.Duration, jobs []*Job) error {
	err := e.run(ctx, timeout, jobs)
	if err == nil && e.borrowed {
		e.borrowed = false
		if n := e.mesh.Failed(); n != nil { // who lent what was read may have had it back, and changed it, meanwhile
			err = &Gone{n}
		}
	}
	if err != nil {
		e.mesh.Release()
	}
	return err
}

func (e *Engine) run(ctx context.Context, timeout time.Duration, jobs []*Job) error {
	switch j := jobs[0]; {
	case !e.allShort(jobs):
		e.start(jobs)
	case len(jobs) == 1 && j.Plan.single && e.darts:
		over, err := e.dart(j)
		if over && (!e.wire || e.mesh.Drained()) {
			return nil
		}
		e.start(jobs)
		if e.resume(); err != nil {
			return err
		}
	case e.darts:
		e.start(jobs)
		if err := e.sprint(); err != nil || e.left == 0 && (!e.wire || e.mesh.Drained()) {
			return err
		}
	default:
		e.start(jobs)
	}
	polls := 0
	for idle := 0; ; {
		if polls++; polls%busyCheck == 0 { // while data moves, too
			if err := e.check(ctx, time.Now(), timeout); err != nil {
				return err
			}
		}
		moved, err := e.poll()
		if err != nil {
			return err
		}
		if e.left == 0 && e.drained() {
			return nil
		}
		if moved {
			idle, e.suspect = 0, nil
			continue
		}
		idle++
		if err := e.idle(ctx, timeout, idle); err != nil {
			return err
		}
	}
}

// poll moves every lane as far as it goes, then lets posted writes and arrivals progress unless nothing
// is left to wait for. It reports whether anything moved. A call that only sends, into links with room,
// so asks the network for nothing.
func (e *Engine) poll() (moved bool, err error) {
	if moved, err = e.advanceAll(); err != nil || !e.wire || e.left == 0 && e.drained() {
		return moved, err
	}
	arrived, err := e.progress()
	return moved || arrived, err
}

// advanceAll moves every lane as far as its links allow.
func (e *Engine) advanceAll() (moved bool, err error) {
	for i := range e.lanes {
		l := &e.lanes[i]
		if l.over || l.job.After != nil && l.job.After.left > 0 {
			continue
		}
		m, err := e.advance(l)
		if err != nil {
			e.failed = l
			return moved, err
		}
		moved = moved || m
		if l.over {
			e.left--
			l.job.left--
			e.foresee()
		}
	}
	return moved, nil
}

func (e *Engine) start(jobs []*Job) {
	e.lanes = e.lanes[:0]
	scratch := 0
	for _, j := range jobs {
		scratch += (j.Plan.scratch + 63) &^ 63
		e.fit(j.Plan)
	}
	if len(e.scratch) < scratch {
		e.scratch = make([]byte, scratch)
	}
	off := 0
	for _, j := range jobs {
		first := len(e.lanes)
		j.left, j.ended = 0, 0
		for i := range j.Plan.lanes {
			n := len(e.lanes)
			if n < cap(e.lanes) {
				e.lanes = e.lanes[:n+1]
			} else {
				e.lanes = append(e.lanes, lane{})
			}
			l := &e.lanes[n]
			l.begin(j, i, first, e.scratch[off:off+j.Plan.scratch])
			if !l.over {
				j.left++
			}
		}
		off += (j.Plan.scratch + 63) &^ 63
	}
	e.left, e.foreseen, e.suspect, e.failed, e.waiting = 0, 0, nil, nil, time.Time{}
	for i := range e.lanes {
		if !e.lanes[i].over {
			e.left++
		}
	}
	e.foresee()
}

// fit makes the engine's lists long enough for a plan.
func (e *Engine) fit(p *Plan) {
	if len(e.srcs) < p.maxOps {
		e.srcs, e.msgs, e.pastOps = make([][]byte, p.maxOps), make([]*link.Message, p.maxOps), make([][]byte, p.maxOps)
	}
	if len(e.dsts) < p.maxOut {
		e.dsts = make([][]byte, p.maxOut)
	}
}

// drained reports whether the peers have released what was lent, and posted writes are out.
func (e *Engine) drained() bool {
	for i := range e.lanes {
		l := &e.lanes[i]
		if !l.lent {
			continue
		}
		for a := range l.acts {
			for _, s := range l.acts[a].sends {
				if !s.Drained() {
					return false
				}
			}
		}
		l.lent = false
	}
	return !e.wire || e.mesh.Drained()
}

// begin puts the lane at the start of lane i of a job. Fields are set one by one because this is on the
// path of the smallest messages.
func (l *lane) begin(j *Job, i, first int, scratch []byte) {
	l.job, l.call, l.first = j, j.Args.Call, first
	if acts := j.Plan.lanes[i]; len(acts) == 0 || len(l.acts) == 0 || &acts[0] != &l.acts[0] {
		l.acts = acts
	}
	if len(scratch) != 0 || len(l.scratch) != 0 {
		l.scratch = scratch
	}
	l.window, l.at, l.steps, l.size, l.placed = 0, 0, 0, -1, 0
	l.lent, l.over, l.held = false, len(l.acts) == 0, false
	if j.Plan.early {
		clear(l.answers)
	}
}

// live reports whether the lane has begun, or could, and has not finished.
func (l *lane) live() bool { return !l.over && (l.job.After == nil || l.job.After.left == 0) }

// buffer returns the memory of a buffer of a lane's job.
func (l *lane) buffer(b schedule.Buf) []byte {
	switch b {
	case schedule.In:
		return l.job.Args.In
	case schedule.Out:
		return l.job.Args.Out
	}
	return l.scratch
}

// advance moves a lane as far as its links allow and reports whether it moved at all.
func (e *Engine) advance(l *lane) (moved bool, err error) {
	for {
		a := &l.acts[l.at]
		if l.size < 0 {
			if l.at == 0 && l.job.Args.Stage != nil {
				if ok, err := e.staged(l); !ok || err != nil {
					return moved, err
				}
			}
			if !e.ready(l, a) {
				return moved, nil
			}
			_, l.size = a.length.at(l.window, l.job.Plan.Layout.Elem)
			l.done, l.placed, l.told = 0, 0, false
			l.expects(a)
			if l.size >= link.GrantMin && e.wire {
				for _, s := range a.sends {
					if g, ok := s.(link.Grantee); ok {
						g.Begin(l.size)
					}
				}
			}
		}
		step, err := e.fire(l, a)
		if err != nil || !step {
			return moved, err
		}
		moved = true
		if l.done == l.size && l.placed >= 0 {
			e.next(l, a)
			if l.at == 0 && l.job.Args.Stage != nil {
				if err := e.passed(l.job, l.first); err != nil {
					return true, err
				}
			}
			if l.over {
				return true, nil
			}
		}
	}
}

// ready reports whether the steps an action waits for have finished.
func (e *Engine) ready(l *lane, a *action) bool {
	if a.after.Steps == 0 {
		return true
	}
	o := &e.lanes[l.first+a.after.Lane]
	return o.over || o.window > l.window || o.window == l.window && o.steps >= a.after.Steps
}

func (e *Engine) next(l *lane, a *action) {
	l.size = -1
	if a.steps > 0 {
		l.steps = a.steps
	}
	if l.at++; l.at < len(l.acts) {
		return
	}
	l.at, l.steps = 0, 0
	if l.window++; l.window == l.job.Plan.windows {
		l.over = true
	}
}

// fire moves one piece of an action's transfer, or returns false if a link is not ready.
func (e *Engine) fire(l *lane, a *action) (bool, error) {
	call := &l.call
	rest := l.size - l.done
	if l.placed < 0 {
		return e.notify(l, a, call), nil
	}
	if a.lendable && l.done == 0 && l.size >= max(e.lendMin, l.job.Plan.Layout.LendMin) {
		if ok, tried := e.lend(l, a, call); tried {
			return ok, nil
		}
	}
	e.tellPlace(l, a)
	room := min(rest, l.job.Plan.piece)
	n, lent, err := e.arrived(l, a, room)
	if n < 0 {
		return false, err
	}
	if a.direct && l.sendsFrom(a, n) {
		return e.fireDirect(l, a, call, n, lent)
	}
	if l.shares(a, n) {
		return e.fireShared(l, a, call, n, lent)
	}
	dsts := e.dsts[:0]
	if a.keeps() {
		dsts = append(dsts, nil) // filled in when n is known
	}
	placed := false
	for i, s := range a.sends {
		if b := e.place(l, a, i); b != nil {
			if !placed { // whose memory it is may have it back
				if f := e.mesh.Failed(); f != nil {
					return false, &Gone{f}
				}
			}
			dsts, placed = append(dsts, b), true
			continue
		}
		if !e.wire {
			room = n
		}
		b, ok := s.Reserve(room)
		if !ok {
			return false, nil
		}
		dsts = append(dsts, b)
		n = min(n, len(b))
	}
	e.cut(l, a, dsts, n)
	srcs, err := e.sources(l, a, dsts, n)
	if srcs == nil {
		return false, err
	}
	e.combine(l, a, dsts, srcs, n)
	if err := e.stillLent(lent); err != nil {
		return false, err
	}
	for i, s := range a.sends {
		if !placed || e.place(l, a, i) == nil {
			s.Commit(n, call)
		}
	}
	l.moved(a, n)
	if placed && l.done == l.size {
		l.placed = -1 // notices are due
		e.notify(l, a, call)
	}
	return true, nil
}
