package rdmatest

import (
	"bytes"
	"fmt"
	"runtime"
	"time"

	"github.com/gccl/gccl/rdma"
)

// stream is a two-way conversation over one pair of endpoints, as links hold them: numbered messages
// into a window of slots at the peer, acknowledged by empty writes. Each side runs it with the
// same numbers. It checks every message's bytes and order at the moment of its arrival.
type stream struct {
	window int    // messages under way one way
	size   int    // bytes of a slot: messages are 1 to size bytes long
	total  uint32 // messages each way
	seed   uint64 // of this side's messages
	peer   uint64 // seed of the peer's
	quiet  bool   // unsignaled where the contract allows it
}

// ackBit marks an immediate as an acknowledgement; the other bits count messages.
const ackBit = 1 << 31

// recvDepth is what a stream's endpoints need: a window of messages and as many acknowledgements.
func (st stream) recvDepth() int { return 2*st.window + 2 }

// length returns the length of message i.
func (st stream) length(seed uint64, i uint32) int {
	return 1 + int((seed+uint64(i)*2654435761)%uint64(st.size))
}

// run holds one side of the conversation. Messages leave from the lower half of s.mem and arrive in
// the upper half of the peer's, which remote describes.
func (st stream) run(s *side, remote rdma.RemoteRegion) error {
	if st.window*st.size > memSize/2 {
		return fmt.Errorf("a window of %d messages of %d bytes does not fit", st.window, st.size)
	}
	c := conversation{
		stream: st, s: s, remote: remote,
		want:   make([]byte, st.size),
		places: make([]uint64, st.window),
		every:  max(1, min(s.dev.Attr().MaxPosted, st.window)/2),
	}
	for deadline := time.Now().Add(Limit); !c.done(); {
		progress, err := c.step()
		if err != nil {
			return err
		}
		if progress {
			deadline = time.Now().Add(Limit)
			continue
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no progress: sent %d, acknowledged %d, received %d, owed %d of %d; writes %d, complete %d, last signaled %d",
				c.sent, c.acked, c.got, c.owed, st.total, c.posted, c.completed, c.signaled)
		}
		runtime.Gosched()
	}
	return nil
}

// conversation is the state of one side of a stream. Writes are numbered from 1 by their IDs.
type conversation struct {
	stream
	s      *side
	remote rdma.RemoteRegion
	want   []byte   // scratch
	places []uint64 // which write last used a slot's source
	every  int      // at least one write in so many is signaled

	sent, acked, got, owed      uint32 // messages
	posted, signaled, completed uint64 // the last write posted, posted signaled, known to be complete
}

func (c *conversation) done() bool {
	return c.sent == c.total && c.acked == c.total && c.got == c.total && c.owed == 0 && c.completed >= c.signaled
}

// step polls once and posts at most one message and one acknowledgement.
func (c *conversation) step() (progress bool, err error) {
	n, err := c.s.poll()
	if err != nil {
		return false, err
	}
	for _, w := range c.s.wrote {
		if w.Err != nil {
			return false, fmt.Errorf("write %d: %w", w.ID, w.Err)
		}
		if w.ID <= c.completed {
			return false, fmt.Errorf("write %d completes after write %d", w.ID, c.completed)
		}
		c.completed = w.ID
	}
	c.s.wrote = c.s.wrote[:0]
	for _, r := range c.s.received {
		if err := c.receive(r.Imm); err != nil {
			return false, err
		}
	}
	c.s.received = c.s.received[:0]
	progress = n > 0

	slot := int(c.sent) % c.window
	if c.sent < c.total && c.sent-c.acked < uint32(c.window) && c.places[slot] <= c.completed {
		b := c.s.mem.Bytes()[slot*c.size:][:c.length(c.seed, c.sent)]
		fill(b, c.seed+uint64(c.sent))
		ok, err := c.post(rdma.Write{
			Local: b, Region: c.s.mem, Remote: c.remote, Offset: uint64(memSize/2 + slot*c.size),
			Imm: c.sent, HasImm: true, Signaled: !c.quiet,
		})
		if err != nil {
			return false, err
		}
		if ok {
			c.places[slot] = c.posted
			c.sent++
			progress = true
		}
	}
	if c.owed >= uint32(max(c.window/2, 1)) || c.owed > 0 && !progress {
		// The last one is signaled: this side polls until it has left.
		ok, err := c.post(rdma.Write{Imm: ackBit | c.owed, HasImm: true, Signaled: !c.quiet || c.got == c.total})
		if err != nil {
			return false, err
		}
		if ok {
			c.owed = 0
		}
	}
	return progress, nil
}

// receive takes a message, which lies in its slot, or an acknowledgement.
func (c *conversation) receive(imm uint32) error {
	if imm&ackBit != 0 {
		c.acked += imm &^ ackBit
		return nil
	}
	if imm != c.got {
		return fmt.Errorf("message %d arrives instead of %d", imm, c.got)
	}
	want := c.want[:c.length(c.peer, imm)]
	fill(want, c.peer+uint64(imm))
	at := memSize/2 + int(imm)%c.window*c.size
	if !bytes.Equal(want, c.s.mem.Bytes()[at:at+len(want)]) {
		return fmt.Errorf("message %d of %d bytes arrives changed", imm, len(want))
	}
	c.got++
	c.owed++
	return nil
}

// post posts one write, signaled also if it is time to, and tells whether it was taken.
func (c *conversation) post(w rdma.Write) (bool, error) {
	w.ID = c.posted + 1
	w.Signaled = w.Signaled || w.ID-c.signaled >= uint64(c.every)
	n, err := c.s.ep.Post([]rdma.Write{w})
	if n == 0 || err != nil {
		return false, err
	}
	c.posted = w.ID
	if w.Signaled {
		c.signaled = w.ID
	}
	return true, nil
}
