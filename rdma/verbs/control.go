package verbs

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// message is the immediate of an empty SEND between control queue pairs. A probe is an empty WRITE
// instead: the peer's card answers it without the peer, which may be stopped.
type message uint32

const (
	imHello   message = iota + 1 // I am connected
	imProbe                      // are you there?
	imBye                        // I close
	imBroken                     // my end of the data connection failed
	imReceive                    // not sent: marks receives
)

const (
	controlSends = 8
	controlRecvs = 16
)

// controlTimers give up after half the time of the data pair's: 7 times 268 ms by default (2^16 × 4.096 µs),
// 1.9 s, so that a link that flaps for less is survived. A card may take up to four times as long;
// probeLimit does not wait for it.
func controlTimers(o *Options) timers {
	return timers{timeout: max(1, o.Timeout-1), retry: 6, rnrRetry: 7, minRNR: 18}
}

// probeLimit is how long a probe may stay without an answer by our own clock: 2.5 s by default, twice as
// long for each step of Timeout, and never less than a second, in which a process may have to wait for a core.
func (o *Options) probeLimit() time.Duration {
	return max(time.Second, 2500*time.Millisecond<<o.Timeout>>defaultTimeout)
}

func randomPSN() uint32 { return rand.Uint32() & 0xffffff }

// phase is what a control connection is doing.
type phase uint8

const (
	idle     phase = iota // not connected
	greeting              // hello is on its way, again and again
	up                    // the peer is known to be connected: probes
	ending                // the data connection is broken; nothing but bye is sent
	leaving               // bye is on its way, or the queue pair is destroyed
)

// control is the second connection of an endpoint. keeper.mu guards it.
//
// A hello to a peer that is not connected yet is dropped until the card gives up, 1.9 s later; then
// the queue pair begins anew. Sequence numbers go on where they were, because the peer may be
// connected by then and have sent its own hello. Every SEND is one packet, so that they can be counted;
// probes cannot, so that hello is said again in their place until the peer's has arrived: from then on
// the peer does not begin anew.
// The second to connect finds the first connected, so that both know it one trip later.
type control struct {
	k    *keeper
	e    *endpoint
	key  uint32
	qp   *ibv.QP
	send *ibv.Sender
	recv *ibv.Receiver

	psn  uint32
	path *path
	peer queueAddress

	phase           phase
	heard           bool   // own hello was acknowledged
	greeted         bool   // the peer's hello has arrived
	last            bool   // hello is not tried again
	generation      uint32 // of the queue pair's life, in request IDs
	acked, received uint32 // messages
	inFlight        int
	probing         bool
	giveUp          time.Time // to wait for the peer
	due             time.Time // up: to probe, or to miss an answer; leaving: to destroy
}

func (c *control) address() queueAddress { return queueAddress{c.qp.Num, c.psn} }

// initLocked takes a fresh or reset queue pair to INIT and posts its receives.
func (c *control) initLocked() error {
	if err := c.qp.Modify(c.k.dev.initAttr(), initMask); err != nil {
		return err
	}
	for range controlRecvs {
		if err := c.recv.Post(); err != nil {
			return err
		}
	}
	return nil
}

// connectLocked takes it from INIT to RTS and greets.
func (c *control) connectLocked() error {
	const mask = 0xffffff
	mine := queueAddress{c.qp.Num, (c.psn + c.acked) & mask}
	theirs := queueAddress{c.peer.qpn, (c.peer.psn + c.received) & mask}
	if err := c.path.connect(c.qp, mine, theirs, controlTimers(&c.k.dev.opts)); err != nil {
		return err
	}
	if c.phase == idle {
		c.phase = greeting
	}
	return c.sayLocked(imHello)
}

// start connects to the peer's control queue pair.
func (c *control) start(p *path, peer queueAddress) error {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if c.phase != idle {
		return c.e.failure() // closed meanwhile
	}
	c.path, c.peer = p, peer
	c.giveUp = time.Now().Add(c.k.dev.opts.ConnectTimeout)
	err := c.connectLocked()
	c.k.wakeLocked()
	return err
}

func (c *control) sayLocked(m message) error {
	w := c.send.Requests[0].WR
	w.ID = uint64(c.key)<<32 | uint64(c.generation&0xffffff)<<8 | uint64(m)
	w.Opcode, w.Flags, w.Imm = ibv.OpSendImm, ibv.SendSignaled, ibv.NetworkOrder(uint32(m))
	if m == imProbe { // to no address with no key: an empty write needs none
		w.Opcode, w.Imm = ibv.OpWrite, 0
	}
	_, err := c.send.Post(1)
	if err == nil {
		c.inFlight++
	}
	return err
}

// tell sends a last word about the data connection.
func (c *control) tell(m message) {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	if c.phase == greeting || c.phase == up {
		c.phase = ending
		_ = c.sayLocked(m) // the queue has room; if the pair is broken, there is nobody to tell
	}
}

// close says bye, and leaves the queue pair to the keeper, which may have destroyed it with its device.
func (c *control) close() {
	c.k.mu.Lock()
	defer c.k.mu.Unlock()
	switch c.phase {
	case leaving:
		return
	case idle:
		c.destroyLocked()
		return
	}
	_ = c.sayLocked(imBye)
	c.phase = leaving
	c.due = time.Now().Add(linger)
	c.k.wakeLocked()
}

// tickLocked does what is due, and returns when something is due next.
func (c *control) tickLocked(now time.Time) time.Time {
	switch c.phase {
	case greeting:
		if now.Before(c.giveUp) {
			return c.giveUp
		}
		c.lostLocked(fmt.Sprintf("the peer did not connect within %v", c.k.dev.opts.ConnectTimeout))
	case up:
		switch {
		case c.k.dev.opts.KeepAlive < 0:
			return time.Time{}
		case now.Before(c.due):
		case !c.probing:
			m := imProbe
			if !c.greeted {
				m = imHello
			}
			c.due = now.Add(c.k.dev.opts.probeLimit())
			c.probing = c.sayLocked(m) == nil
		case c.heard:
			c.lostLocked(fmt.Sprintf("no answer to a keep-alive for %v: %s", c.k.dev.opts.probeLimit(), unreachable))
			return time.Time{}
		default: // soft-RoCE has been seen to forget the hello
			c.due = now.Add(c.k.dev.opts.probeLimit())
			c.againLocked()
		}
		return c.due
	case leaving:
		if c.inFlight > 0 && now.Before(c.due) {
			return c.due
		}
		c.destroyLocked()
	}
	return time.Time{}
}

func (c *control) completedLocked(wc *ibv.WC) {
	if m := message(wc.ID & 0xff); m != imReceive {
		if uint32(wc.ID>>8)&0xffffff == c.generation&0xffffff {
			c.sentLocked(m, wc.Status)
		}
		return
	}
	if wc.Status != ibv.Success {
		return // the pair failed; a send says why
	}
	c.received++
	_ = c.recv.Post()
	switch message(ibv.NetworkOrder(wc.Imm)) {
	case imHello:
		c.greeted = true
		c.readyLocked()
	case imBye:
		c.lostLocked("the peer closed the connection")
	case imBroken:
		c.peerBrokenLocked()
	}
}

// sentLocked handles the end of an own message.
func (c *control) sentLocked(m message, s ibv.Status) {
	c.inFlight--
	if s == ibv.Success {
		if m != imProbe {
			c.acked++
		}
		if m == imHello {
			c.heard = true
			c.readyLocked()
		}
		if c.phase == up && c.inFlight == 0 {
			c.probing = false
			c.due = time.Now().Add(c.k.dev.opts.KeepAlive)
		}
		return
	}
	switch {
	case c.phase != greeting && c.phase != up:
	case !c.heard && !c.last:
		c.last = c.greeted // it is connected, so that it hears the next hello
		c.againLocked()
	case s == ibv.RetryExceeded:
		t := controlTimers(&c.k.dev.opts)
		c.lostLocked(fmt.Sprintf("no answer to a keep-alive for %d times %v or more: %s", t.retry+1, ackTimeout(t.timeout), unreachable))
	default:
		c.lostLocked(fmt.Sprintf("keep-alive failed: %v", s))
	}
}

// againLocked begins anew with a peer that has not acknowledged the hello.
func (c *control) againLocked() {
	if !time.Now().Before(c.giveUp) {
		why := fmt.Sprintf("the peer did not connect within %v", c.k.dev.opts.ConnectTimeout)
		if c.greeted {
			why = "no answer from the peer since it connected: " + unreachable
		}
		c.lostLocked(why)
		return
	}
	c.generation++
	c.inFlight, c.probing = 0, false
	err := c.qp.Modify(ibv.QPAttr{State: ibv.QPReset}, ibv.MaskState)
	if err == nil {
		err = c.initLocked()
	}
	if err == nil {
		err = c.connectLocked()
	}
	if err != nil {
		c.lostLocked(fmt.Sprintf("control connection: %v", err))
	}
}

// readyLocked: the peer is connected, since it has said so or its card has answered.
func (c *control) readyLocked() {
	if c.phase != greeting {
		return
	}
	c.phase = up
	c.due = time.Now().Add(time.Duration(rand.Int64N(int64(max(c.k.dev.opts.KeepAlive, 1))))) // not all at once
	c.k.actions = append(c.k.actions, c.e.peerReady)
}

// lostLocked breaks the endpoint.
func (c *control) lostLocked(why string) {
	if c.phase == leaving {
		return
	}
	c.phase = ending
	e := c.e
	c.k.actions = append(c.k.actions, func() {
		e.lost(fmt.Errorf("verbs: %v: %s%s: %w", e, why, e.dev.portHint(), rdma.ErrPeerLost))
	})
}

// grace is how long the completions of writes under way have, to tell why the peer's end failed, before
// the peer's bare word counts.
const grace = 250 * time.Millisecond

func (c *control) peerBrokenLocked() {
	if c.phase == leaving {
		return
	}
	c.phase = ending
	e := c.e
	lost := func() {
		e.lost(fmt.Errorf("verbs: %v: the peer's end of the connection failed: %w", e, rdma.ErrPeerLost))
	}
	if e.tail.Load() != e.head.Load() {
		time.AfterFunc(grace, lost)
		return
	}
	c.k.actions = append(c.k.actions, lost)
}

func (c *control) destroyLocked() {
	c.phase = leaving
	delete(c.k.controls, c.key)
	if c.qp != nil {
		if err := c.qp.Destroy(); err != nil {
			c.k.dev.opts.Logger.Sugar().Errorf("verbs: %v: control QP: %v", c.k.dev, err)
		}
		c.qp = nil
	}
	if c.send != nil {
		c.send.Free()
	}
	if c.recv != nil {
		c.recv.Free()
	}
	c.k.room.release(controlSends + controlRecvs)
}
