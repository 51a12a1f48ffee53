package bootstrap

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// farewell bounds how long a rank that leaves or has failed waits for what others have to say.
const farewell = 500 * time.Millisecond

// lastWord bounds how long it waits to say so itself, beyond its context, for peers who take nothing: what they were sent before
// fills the sockets' buffers, and they are stopped, or wait for a core. All else are told without waiting.
const lastWord = 2 * time.Second

// orderly bounds how long the failure of one waits for a collective that has all it needs. Nearly always that takes no time; but of
// hundreds of processes on a few cores each may not run for a second or two.
const orderly = 10 * time.Second

// link is a connection to another rank of the group, with the goroutine that reads it.
type link struct {
	peer int
	who  string // the peer's process, for messages: "pid 12 on host-a"
	conn *wire.Conn
	span // the peer's subtree, if it is a child

	// passing marks a link that serves registration only and goes once the tree stands.
	passing bool
	dropped atomic.Bool // this side has closed it, in order

	// inbox holds frames that the collective in progress will want. Ranks run in lockstep, so a peer
	// that follows the protocol never has more than one frame there.
	inbox chan wire.Frame

	// read is closed when nothing more will be read.
	read chan struct{}

	mu     sync.Mutex // held while sending
	broken bool       // a frame was cut short: nothing more can be sent
}

func newLink(peer int, conn *wire.Conn, id wire.Identity, size int) *link {
	conn.MaxData = MaxPayload + 8 + 4*size
	return &link{
		peer: peer, conn: conn, inbox: make(chan wire.Frame, 2), read: make(chan struct{}),
		who: fmt.Sprintf("pid %d on %s", id.PID, id.Host),
	}
}

func (l *link) send(f wire.Frame, more ...[]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return net.ErrClosed
	}
	err := l.conn.Send(f, more...)
	l.broken = err != nil
	return err
}

// sendLast sends the last frame of a link, waiting for no longer than lastWord, a frame being sent
// included. A peer to which it cannot be sent whole finds the connection closed instead.
func (l *link) sendLast(f wire.Frame) {
	l.conn.Net().SetWriteDeadline(time.Now().Add(lastWord))
	if l.send(f) != nil {
		l.conn.Net().Close()
	}
}

// lost is the error for a connection to the peer that broke with err; rank is who noticed.
func (l *link) lost(rank int, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ended without closing its group")
	}
	return &RankError{Rank: l.peer, Err: fmt.Errorf("%w: %s: %w (noticed by rank %d)", ErrPeerLost, l.who, err, rank)}
}

// reported is the failure that a peer's Fault frame tells.
func (l *link) reported(rank int, f wire.Frame) error {
	failure, err := wire.ParseFailure(f.Payload)
	if err != nil {
		return l.lost(rank, err)
	}
	return errorOf(failure)
}
