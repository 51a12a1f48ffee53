package recovery

import (
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/gccl/gccl/bootstrap"
)

// What the first byte of a message of a contact says.
const (
	framePing    = iota + 1 // answer with a pong
	framePong               // I live
	frameMessage            // an agree.Message follows
)

// sendTime bounds the sending of one frame, to a peer that may have stopped.
const sendTime = 500 * time.Millisecond

// link is a contact with its queue. The session's lock guards all but the contact.
type link struct {
	contact  *bootstrap.Contact
	out      chan []byte
	heard    bool
	finished bool
}

// post queues a frame. A peer that takes so little that the queue is full loses the contact.
func (l *link) post(b []byte) {
	if l.finished {
		return
	}
	select {
	case l.out <- b:
	default:
		l.finish()
		l.contact.Close()
	}
}

// finish lets write end once the queue is empty.
func (l *link) finish() {
	if !l.finished {
		l.finished = true
		close(l.out)
	}
}

// write sends what is queued, and hangs up when that is over.
func (l *link) write() {
	defer l.contact.Close()
	for b := range l.out {
		if l.contact.Send(b, sendTime) != nil {
			return // whoever reads learns why
		}
	}
}

// ended reports whether an error means that the other end is gone, rather than that it cannot be heard.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
