package executor

import (
	"context"
	"runtime"
	"time"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/link"
)

// Wait is how an engine waits for its peers: it spins for Spins polls, then yields the core
// between polls, and after Sleep it sleeps on the mesh's bell. Where ranks outnumber cores, spinning
// costs whole time slices (milliseconds a hop), so Spins is 0 there.
type Wait struct {
	Spins int
	// Yield gives the core to another rank: sched_yield between processes, runtime.Gosched between
	// goroutines. Not nil.
	Yield func()
	// Sleep is how long to poll before sleeping.
	Sleep time.Duration
	// Ask, if not nil, is called now and then by the goroutine that waits; it may look at where the
	// run stands.
	Ask func()
	// Silence, if positive, is how long a peer that is waited for may show no pulse (link.Peer.Listen).
	Silence time.Duration
}

const (
	checkEvery = 64                     // polls between looks at clock, context and failures
	busyCheck  = 1024                   // polls between the same looks while data moves
	blockAfter = 20                     // polls that yield, before a rank sleeps on the queue of all its peers (measured on tcp: sooner or later is slower)
	hotSpins   = 16                     // first spins, without a pause
	spinMost   = 200 * time.Microsecond // spinning that can end in a sleep on a queue
	nap        = 10 * time.Millisecond  // longest sleep, so that contexts are seen; failures ring the bell
	// stageNap is the sleep while a device copies: about what 1 MiB takes on PCIe 3, a small part of a window.
	stageNap = 100 * time.Microsecond
	hurryNap = time.Millisecond // while a link waits for what may not come
)

// idle waits a little after the idle-th poll in a row that moved nothing.
func (e *Engine) idle(ctx context.Context, timeout time.Duration, idle int) error {
	if idle < e.wait.Spins && !e.tires(idle) {
		if idle > hotSpins && !e.wire { // a look at a completion queue takes longer than a pause
			cpu.Pause(1)
		}
		return nil
	}
	if e.canWait {
		if idle < e.wait.Spins+blockAfter && !e.tired {
			e.wait.Yield()
			return nil
		}
		return e.block(ctx, timeout)
	}
	if idle -= e.wait.Spins; idle <= 1 {
		e.drowsy = false
	}
	if !e.drowsy && e.suspect == nil && idle%checkEvery != checkEvery-1 {
		e.wait.Yield()
		return nil
	}
	if e.wait.Ask != nil {
		e.wait.Ask()
	}
	now := time.Now()
	if err := e.check(ctx, now, timeout); err != nil {
		return err
	}
	if idle < checkEvery {
		e.since = now
	}
	if moved, err := e.stash(); moved || err != nil || e.suspect != nil {
		return err // of a suspect only the last messages may be missing, and nobody rings for them
	}
	if now.Sub(e.since) < e.wait.Sleep {
		return nil
	}
	e.drowsy = true
	return e.sleep()
}

// tires reports whether spinning has taken so long that the mesh's queue is to be slept on, if it can be. Polls
// of a network card's queue take 0.1 µs, but elsewhere each may take many times that, and where the network
// needs the processor, too, it is better left to it.
func (e *Engine) tires(idle int) bool {
	switch {
	case !e.canWait:
		return false
	case idle == 1:
		e.tired = false
	case idle%checkEvery != 0 || e.tired:
	case idle == checkEvery:
		e.spun = time.Now()
	default:
		e.tired = time.Since(e.spun) > spinMost
	}
	return e.tired
}

// Go's runtime interrupts a goroutine that has run for 10 ms, and takes its processor away if it is in a call of C
// or a system call just then. Looks at a network are mostly that, and so cost it its processor over and over, and keep
// the runtime's watchdog awake. Who gives way sooner is left alone.
const (
	breathEvery = 64 // looks between those at the clock
	breathAfter = 4 * time.Millisecond
)

// progress polls the mesh, and gives way to other goroutines now and then.
func (e *Engine) progress() (moved bool, err error) {
	if e.looks++; e.looks%breathEvery == 0 {
		if now := time.Now(); now.Sub(e.breathed) > breathAfter {
			e.breathed = now
			runtime.Gosched()
		}
	}
	return e.mesh.Progress()
}

// block looks for reasons to give up and sleeps on the queue that connects all peers: one system call,
// and the kernel runs whoever has something to do.
func (e *Engine) block(ctx context.Context, timeout time.Duration) error {
	if e.wait.Ask != nil {
		e.wait.Ask()
	}
	if err := e.check(ctx, time.Now(), timeout); err != nil {
		return err
	}
	if moved, err := e.stash(); moved || err != nil || e.suspect != nil {
		return err
	}
	return e.mesh.Wait(e.longest())
}

// longest is the longest sleep: short while a stage is waited for, since nobody rings when a device has copied, and
// while a link waits for a grant.
func (e *Engine) longest() time.Duration {
	if e.Held() {
		return stageNap
	}
	if e.mesh.Hurried() {
		return hurryNap
	}
	return nap
}

// sleep arms the bell, polls once more, and sleeps unless that moved something.
func (e *Engine) sleep() error {
	bell := e.mesh.Bell()
	bell.Arm()
	if e.wire {
		if err := e.mesh.Arm(); err != nil {
			bell.Disarm()
			return err
		}
	}
	moved, err := e.poll()
	if moved || err != nil || e.left == 0 && e.drained() {
		bell.Disarm()
		e.suspect = nil
		return err
	}
	bell.Sleep(e.longest())
	return nil
}

// Tend is for a rank that waits for something else between two runs, now and then: it takes in what
// peers send unasked, and returns *Gone once the mesh is broken.
func (e *Engine) Tend() error {
	if n := e.mesh.Failed(); n != nil {
		return &Gone{n}
	}
	if e.wire {
		if _, err := e.mesh.Progress(); err != nil {
			return err
		}
	}
	_, err := e.stash()
	return err
}

// Gone is the error of a run that waits for a rank that will send nothing more, or whose mesh
// another rank has given up.
type Gone struct{ Notice *link.Notice }

// Error returns the notice's text.
func (g *Gone) Error() string { return g.Notice.Text }

// check looks for reasons to give up: a broken mesh, a peer in another call, a peer that is gone while
// a lane waits for it, the context, the deadline.
func (e *Engine) check(ctx context.Context, now time.Time, timeout time.Duration) error {
	if n := e.mesh.Failed(); n != nil {
		return &Gone{n}
	}
	if err := e.stray(now); err != nil {
		return err
	}
	e.listen(now)
	if n := e.mesh.Torn(); n != nil {
		return &Gone{n}
	}
	n := e.gone()
	if n != nil && n == e.suspect {
		return &Gone{n}
	}
	e.suspect = n // the peer may have sent its last message after the poll: look once more
	if err := ctx.Err(); err != nil {
		return err
	}
	if e.waiting.IsZero() {
		e.waiting = now
	}
	if timeout > 0 && now.Sub(e.waiting) > timeout {
		return context.DeadlineExceeded
	}
	return nil
}

// gone returns the end of a peer that some lane waits for.
func (e *Engine) gone() *link.Notice {
	for i := range e.lanes {
		l := &e.lanes[i]
		if n := l.gone(); n != nil {
			e.failed = l
			return n
		}
	}
	return nil
}

// gone returns the end of a peer that the lane waits for.
func (l *lane) gone() *link.Notice {
	if l.over {
		if !l.lent {
			return nil
		}
		for j := range l.acts {
			a := &l.acts[j]
			for k, s := range a.sends {
				if n := a.sendTo[k].Gone(); n != nil && !s.Drained() {
					return n
				}
			}
		}
		return nil
	}
	if !l.live() || l.held { // what is held is noticed by the steps to come
		return nil
	}
	a := &l.acts[l.at]
	for k, r := range a.receives {
		if n := a.recvFrom[k].Gone(); n != nil {
			if m, _ := r.Peek(l.expects(a)); m == nil || m.Far {
				return n
			}
		}
	}
	var end *link.Notice
	l.blocked(a, func(p *link.Peer) {
		if end == nil {
			end = p.Gone()
		}
	})
	return end
}

// stash takes in what peers send on the lane of transfers and nobody asked for yet, so that a rank
// that sends before it receives, or is in a collective meanwhile, does not hold up its peers for
// want of slots.
func (e *Engine) stash() (moved bool, err error) {
	held := 0
	for _, r := range e.transfers {
		held += r.Stashed()
	}
	for _, r := range e.transfers {
		if held >= e.stashMax {
			break
		}
		n, k, err := r.Stash(e.stashMax - held)
		if err != nil {
			return moved, err
		}
		held += n
		moved = moved || k > 0
	}
	return moved, nil
}
