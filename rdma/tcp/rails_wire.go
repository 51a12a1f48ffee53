//go:build linux

package tcp

import (
	"fmt"

	"github.com/gccl/gccl/rdma/internal/rail"
)

// fillLocked gives an empty lane what the peer must know of the rails. It reports whether writes may follow.
func (r *rails) fillLocked(l *lane) bool {
	o := &l.out
	if r.lostDue.Has(l.index) {
		r.lostDue = r.lostDue.Without(l.index)
		h := header{kind: frameLost, imm: uint32(r.send.Dead()), seq: r.landed}
		o.stage = h.append(o.stage)
	}
	if round, first := r.send.Round(); o.round != round {
		o.round = round
		h := header{kind: frameAgain, imm: round, seq: first}
		o.stage = h.append(o.stage)
	}
	if r.ackDue {
		r.ackDue = false
		h := header{kind: frameLanded, seq: r.landed}
		o.stage = h.append(o.stage)
	}
	return !r.send.Held()
}

// wantsLocked reports whether lanes have something to take. The transmitter's mu is held.
func (r *rails) wantsLocked(t *transmitter) bool {
	if t.err != nil || t.closed {
		return t.fail != 0
	}
	if r.ackDue || r.lostDue != 0 || (t.next < t.tail && !r.send.Held()) {
		return true
	}
	round, _ := r.send.Round()
	for _, l := range t.e.lanes {
		if l.out.round != round {
			return true
		}
	}
	return false
}

// aloneLocked reports whether all writes before the next one are over, as far as this end will learn: with
// several sockets the peer tells nothing of unsignaled ones.
func (t *transmitter) aloneLocked() bool {
	for _, l := range t.e.lanes {
		if !l.out.empty() {
			return false
		}
	}
	for n := t.done; n < t.next; n++ {
		if t.at(n).signaled {
			return false
		}
	}
	return true
}

// landedLocked notes that the peer has landed the first n writes.
func (t *transmitter) landedLocked(n uint64) {
	t.done = max(t.done, n)
	if t.next < n {
		t.next, t.off = n, 0
	}
	// A lane may hold a piece from before this end began again. The peer drops it, but it has to come whole;
	// the write's memory is its user's from now on, also if the peer lied.
	for _, l := range t.e.lanes {
		if len(l.out.big) > 0 && l.out.bigSeq < t.done {
			l.out.big = padding[:len(l.out.big)]
		}
	}
}

// acknowledge has the peer told how many writes have landed. The queue's mu is held.
func (e *endpoint) acknowledge() {
	t := &e.tx
	t.mu.Lock()
	e.rails.landed, e.rails.ackDue = e.rx.seq, true
	if t.err == nil && !t.closed {
		t.wants.Store(true)
	}
	t.mu.Unlock()
}

// beginRail deals with a frame that is about the rails, or that is not to land at all. done: that was all, or
// the endpoint is broken because of it.
func (l *lane) beginRail() (done bool, err error) {
	e, in := l.e, &l.in
	h, r := &in.h, l.e.rails
	if r == nil {
		if h.kind > frameBye || h.flags&flagAck != 0 {
			return true, l.refuse(failProtocol, fmt.Errorf("%w: type %d, flags %#02x, on a connection of one socket", errFrame, h.kind, h.flags))
		}
		return false, nil
	}
	switch h.kind {
	case frameLanded:
		t := &e.tx
		t.mu.Lock()
		if err = r.send.Landed(h.seq, t.next); err == nil {
			t.landedLocked(h.seq)
			t.settleLocked()
		}
		t.mu.Unlock()
	case frameLost:
		if dead := rail.Set(h.imm); uint32(dead) != h.imm || dead == 0 || !r.all.Holds(dead) || dead.Has(l.index) {
			err = fmt.Errorf("%w: lost sockets %#x, said by socket %d of %d", errFrame, h.imm, l.index, r.all.Len())
		} else {
			e.cq.upset = append(e.cq.upset, upset{l: l, dead: dead, n: h.seq})
		}
	case frameAgain:
		err = l.beginAgain()
	default:
		if r.recv.Judge(l.index, h.seq, e.rx.seq) == rail.Drop {
			in.region, in.left, in.diverted = nil, nil, false
			l.drop(int(h.length))
			return true, nil
		}
		return false, nil // to be judged again when its turn has come
	}
	if err != nil {
		err = l.refuse(failProtocol, err)
	}
	return true, err
}

// beginAgain takes a mark: the peer sends again from here on what had not landed.
func (l *lane) beginAgain() error {
	e, h := l.e, &l.in.h
	fresh, err := e.rails.recv.Again(l.index, h.imm, h.seq, e.rx.seq)
	if err != nil || !fresh {
		return err
	}
	e.rx.got = 0
	for _, o := range e.lanes {
		if o != l && e.rails.recv.Stale(o.index) {
			o.dropFrame()
			e.cq.revisitLocked(o)
		}
	}
	return nil
}

// unpark judges the frame whose payload is next. wait: it is not its turn.
func (l *lane) unpark() (wait bool, cause error) {
	e, in := l.e, &l.in
	switch e.rails.recv.Judge(l.index, in.h.seq, e.rx.seq) {
	case rail.Land:
		in.state = inPayload
	case rail.Park:
		return true, nil
	case rail.Bad:
		return false, l.refuse(failProtocol, fmt.Errorf("%w: write %d when %d is expected", errFrame, in.h.seq, e.rx.seq))
	case rail.Drop:
		l.dropFrame()
		for _, o := range e.lanes {
			if o != l && o.in.state == inParked {
				e.cq.revisitLocked(o)
			}
		}
	}
	return false, nil
}

// dropFrame gives up the frame that waits for its turn or is half there.
func (l *lane) dropFrame() {
	in := &l.in
	if in.state != inParked && in.state != inPayload {
		return
	}
	if in.diverted {
		in.region.detours.giveBack(in.h.addr, in.round)
		in.diverted = false
	}
	n := len(in.left)
	in.region, in.left = nil, nil
	l.drop(n)
}

// drop has the next n bytes read and forgotten, the rest of a frame. Its sender may not know that it has landed
// before.
func (l *lane) drop(n int) {
	l.in.state, l.in.skip = inSkip, n
	if h := &l.in.h; h.seq < l.e.rx.seq && h.flags&flagAck != 0 {
		l.e.acknowledge()
	}
}
