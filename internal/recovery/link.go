package recovery

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/bootstrap"
)

// What the first byte of a message of a contact says.
const (
	framePing    = iota + 1 // answer with a pong
	framePong               // I live
	frameMessage            // an agree.Message follows
)

// farewell bounds how long a rank that leaves tries to send what it has said.
const farewell = 500 * time.Millisecond

// link is a contact with its queue. It is closed only when this rank leaves, or the other has: for the
// other, its end means that this rank is gone. The session's lock guards all but contact and leaving.
type link struct {
	contact  *bootstrap.Contact
	out      chan []byte
	leaving  atomic.Bool
	heard    bool
	finished bool
	clogged  bool // the peer takes nothing, and messages to it are lost
}

// queued bounds the frames that wait for a peer to take them.
const queued = 256

func newLink(c *bootstrap.Contact) *link { return &link{contact: c, out: make(chan []byte, queued)} }

// post queues a frame. Signs of life are left out where many wait.
func (l *link) post(b []byte) {
	if l.finished || b[0] != frameMessage && len(l.out) > queued/2 {
		return
	}
	select {
	case l.out <- b:
	default:
		l.clogged = true
	}
}

// finish lets write end once the queue is empty, and soon.
func (l *link) finish() {
	if !l.finished {
		l.finished = true
		l.leaving.Store(true)
		l.contact.Hurry(farewell)
		close(l.out)
	}
}

// write sends what is queued, and hangs up when that is over.
func (l *link) write() {
	defer l.contact.Close()
	for b := range l.out {
		within := time.Duration(0)
		if l.leaving.Load() {
			within = farewell
		}
		if l.contact.Send(b, within) != nil && l.leaving.Load() {
			return
		} // else whoever reads learns why
	}
}

// ended reports whether an error means that the other end was closed, by the process or because that
// ended. A reset does not: it may also come from a host that lost the connection in a partition.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
