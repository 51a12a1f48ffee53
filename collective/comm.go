package collective

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
	"go.uber.org/zap"
)

// Comm is a communicator: a fixed set of ranks that make the same calls in the same order. Its
// methods may be called from any goroutine; calls run one after another in the order issued. With several
// goroutines the program must see to it that this order is the same on all ranks, for instance by a
// [Comm.Dup] for each goroutine.
type Comm struct {
	rank, size int
	cfg        Config
	log        *zap.Logger
	group      bootstrap.Group
	ownGroup   bool
	devices    devices
	peers      []hello
	mesh       *link.Mesh
	geo        link.Geometry
	engine     *executor.Engine
	pairs      *bootstrap.Pairs // makes links when they are wanted; nil: all are made
	attempt    *attempt         // that failed, until its failure is told
	catalog    []schedule.Info
	tuning     tuning
	epoch      uint64
	standby    standby

	queue queue

	// What follows belongs to whoever holds the turn (queue).
	seq      uint64
	p2pSeq   []transferSeq
	plans    map[planKey]*planned
	recent   [Recv + 1]recent // the latest call of each kind
	sh       shape
	job      executor.Job
	filled   *recent // the call that job was last filled for; nil: another, or not known
	jobs     [1]*executor.Job
	grouping grouping
	windows  windows
	flight   flight
	accel    accel
	pulse    stopper
	moments  moments

	crowding int // see heartbeat

	outside sync.Mutex // held by whoever uses the mesh, while the one with the turn waits outside the engine (attended)

	broken    atomic.Pointer[StepError]
	intact    context.Context // until the communicator breaks
	breakOff  context.CancelCauseFunc
	closed    atomic.Bool
	life      sync.RWMutex // guards the mesh against Abort while it is released
	released  bool
	closeOnce sync.Once
	closeErr  error
}

// transferSeq counts the transfers with one peer.
type transferSeq struct {
	sent, received     uint32
	sending, receiving *executor.Job // the latest of the group that is being made
}

// Rank returns this rank's number.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks.
func (c *Comm) Size() int { return c.size }

// LocalRank returns this rank's place among the ranks of its host, in the order of their numbers, from 0: what to
// choose an accelerator by. Of ranks that are goroutines every one has the host to share with all.
func (c *Comm) LocalRank() int { return c.onHost(c.rank) }

// LocalSize returns how many ranks this rank's host has.
func (c *Comm) LocalSize() int { return c.onHost(c.size) }

// onHost counts the ranks below a number that are on this rank's host.
func (c *Comm) onHost(below int) (n int) {
	for r := range below {
		if c.peers[r].HostID == c.peers[c.rank].HostID {
			n++
		}
	}
	return n
}

// run makes one call. The caller holds the turn.
func (c *Comm) run(ctx context.Context, call *Call) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notBegun(*call, err)
	}
	if r := c.same(call); r != nil && r.plan.later == nil {
		return c.again(ctx, r, call)
	}
	p, err := c.ready(call)
	if err != nil {
		return err
	}
	return c.runPlanned(ctx, p, call)
}

func (c *Comm) runPlanned(ctx context.Context, p *planned, call *Call) error {
	if p.later != nil {
		if err := c.reach(ctx, p); err != nil {
			return c.fail(call, c.upcoming(call), err)
		}
	}
	if onDevice(call) {
		return c.runStaged(ctx, p, call)
	}
	c.filled = nil
	c.fill(&c.job, p, call)
	return c.runJob(ctx, call)
}

// again makes the call that r was, once more.
func (c *Comm) again(ctx context.Context, r *recent, call *Call) error {
	if c.filled == r {
		c.number(&c.job, r.plan, call)
	} else {
		c.fill(&c.job, r.plan, call)
		c.filled = r
	}
	return c.runJob(ctx, call)
}

func (c *Comm) runJob(ctx context.Context, call *Call) error {
	c.jobs[0] = &c.job
	err := c.engine.Run(ctx, c.cfg.Timeout, c.jobs[:])
	if err == nil && !c.engine.Waited() {
		c.flight.ring.End(true) // as ended would, which is too long to be inlined
		return nil
	}
	if c.ended(err); err != nil {
		return c.fail(call, c.numberOf(&c.job, call), err)
	}
	return nil
}

// fill makes a job of a planned call and takes its sequence number (number).
func (c *Comm) fill(j *executor.Job, p *planned, call *Call) {
	j.Plan = p.plan
	a := &j.Args
	a.In, a.Out, a.Reducer, a.Stage, a.AttachMin = call.Src.Bytes(), call.Dst.Bytes(), p.reducer, nil, p.attachMin
	if a.InPlace, a.OutPlace = (link.Place{}), (link.Place{}); len(c.windows.list) > 0 {
		a.InPlace, a.OutPlace = c.windows.place(a.In), c.windows.place(a.Out)
	}
	c.number(j, p, call)
}

// number takes the sequence number of a job's call.
func (c *Comm) number(j *executor.Job, p *planned, call *Call) {
	a := &j.Args
	var seq uint32
	switch call.Kind {
	case Send:
		seq = c.p2pSeq[call.Peer].sent + 1
		c.p2pSeq[call.Peer].sent = seq
	case Recv:
		seq = c.p2pSeq[call.Peer].received + 1
		c.p2pSeq[call.Peer].received = seq
	default:
		c.seq++
		seq = uint32(c.seq)
	}
	if c.cfg.bare {
		a.Call = link.Call{}
		return
	}
	a.Call = link.Call{FP: mix(p.fp^c.epoch, uint64(seq)), A: p.sort.A | uint64(seq), B: p.sort.B}
	c.flight.ring.Begin(p.sort, seq)
}

// upcoming is the number that a call gets if it is the next one.
func (c *Comm) upcoming(call *Call) uint64 {
	switch call.Kind {
	case Send:
		return uint64(c.p2pSeq[call.Peer].sent) + 1
	case Recv:
		return uint64(c.p2pSeq[call.Peer].received) + 1
	}
	return c.seq + 1
}

// numberOf is the number that a call has got (fill), whose job knows its low 32 bits.
func (c *Comm) numberOf(j *executor.Job, call *Call) uint64 {
	last := c.upcoming(call) - 1
	return last - uint64(uint32(last)-uint32(j.Args.Call.A))
}

// usable returns why no call can be made, or nil.
func (c *Comm) usable() error {
	if c.closed.Load() {
		return ErrClosed
	}
	if e := c.broken.Load(); e != nil {
		return e
	}
	return nil
}

// Close leaves the communicator and releases its memory and connections. It is local and bounded:
// it waits for no peer, but for up to 3 s for its own last messages to be taken by the
// network, in a Grow for 2 s at most for newcomers that take nothing, and over verbs as long for the kernel, where that asks
// for the address of a peer to which a link is being made. Peers that still need this rank get an error that says that it
// closed. A call in flight is aborted; it and calls that wait for their turn return an error.
func (c *Comm) Close() error {
	if c.queue.inOp() {
		return errInOp
	}
	c.closeOnce.Do(func() {
		c.closed.Store(true)
		c.standby.recall.end()
		c.pulse.stop() // whose turn is no call
		if !c.settle() {
			c.Abort("closed while a call was in flight")
			c.standby.interrupt()
			h := c.queue.put(func() error {
				c.queue.close()
				c.closeErr = c.release()
				return nil
			})
			<-h.done
			return
		}
		c.queue.close()
		c.closeErr = c.release()
		c.queue.leave()
	})
	return c.closeErr
}

func (c *Comm) release() error {
	var errs []error
	c.closeRecord()
	c.pulse.stop()
	if c.pairs != nil {
		c.pairs.Close()
	}
	c.standby.close()
	c.life.Lock() // an Abort from another goroutine touches the mesh's memory
	defer c.life.Unlock()
	if c.mesh != nil {
		if c.broken.Load() == nil {
			c.mesh.Goodbye()
			c.flush(flushMost)
		}
		errs = append(errs, c.windows.close(), c.mesh.Close())
		c.released = true
	}
	errs = append(errs, c.accel.close())
	errs = append(errs, c.devices.close())
	if c.ownGroup {
		errs = append(errs, c.group.Close())
	}
	return errors.Join(errs...)
}

// flushMost is how long Close waits for its last messages to be taken. Over several sockets or queue pairs it is the
// peer that takes them, and on a busy machine that may not run for more than a second.
const flushMost = 3 * time.Second

// flush polls until posted writes are acknowledged, at most for d: a connection that is closed sends
// nothing again that was lost.
func (c *Comm) flush(d time.Duration) {
	bell := c.mesh.Bell()
	for end := time.Now().Add(d); !c.mesh.Acknowledged() && time.Now().Before(end); {
		bell.Arm()
		if c.mesh.Arm() != nil {
			bell.Disarm()
			return
		}
		switch moved, err := c.mesh.Progress(); {
		case err != nil:
			bell.Disarm()
			return
		case moved:
			bell.Disarm()
		default:
			bell.Sleep(time.Millisecond)
		}
	}
}

// Abort breaks the communicator at once, from any goroutine, also while a call is in flight: that
// call, and the peers' calls, return an error that names this rank and why. Abort returns at once; or, while
// a call makes links, when the ranks at their other ends have been told, for which it waits a second at most.
func (c *Comm) Abort(why string) { c.giveUp(link.CauseGaveUp, "abort", "aborted", why) }

// giveUp breaks the communicator for a reason of this rank's own.
func (c *Comm) giveUp(cause link.Cause, call, verb, why string) {
	n := &link.Notice{Cause: cause, From: c.rank, Culprit: c.rank, Text: fmt.Sprintf("%s %s: %s", c.describe(c.rank), verb, why)}
	first := n
	c.life.RLock()
	if !c.released {
		first = c.mesh.Fail(n)
	}
	c.life.RUnlock()
	c.tellPairs(first)
	c.breaks(&StepError{Kind: kindOf(cause), Call: call, Rank: c.rank, Peer: c.rank, Step: -1, Err: errors.New(n.Text)})
	if c.cfg.DumpDir != "" && c.settle() { // else the call in flight fails, and leaves its record
		c.writeDump(c.snapshot("failure"))
		c.queue.leave()
	}
}
