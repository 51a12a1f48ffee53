package meet

import (
	"net"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// Badge is what a process knows of its job, and both ends of a connection must know alike.
type Badge struct {
	Key   wire.Key
	Run   wire.RunDigest
	Epoch uint64
}

// NewBadge returns the badge of an epoch of a job.
func NewBadge(secret, runID string, epoch uint64) Badge {
	return Badge{wire.DeriveKey(secret, runID, epoch), wire.DigestRun(runID), epoch}
}

// Arrival is a connection that a door let in.
type Arrival struct {
	Conn  *wire.Conn
	Hello wire.Hello
	ID    wire.Identity
}

// Door lets in the connections that prove to belong to a job and that want a certain rank of it for a
// certain purpose, and hands them over.
type Door struct {
	Badge
	purpose wire.Purpose
	target  uint32

	// Arrivals delivers connections to whoever receives from it, who owns them then.
	Arrivals chan Arrival

	gate   *Gate
	alone  bool // the gate is there for this door only
	once   sync.Once
	closed chan struct{}
}

// Open makes a gate of listeners with one door, for callers that want rank target.
func Open(b Badge, purpose wire.Purpose, target uint32, log *zap.Logger, listeners []net.Listener) *Door {
	g := newGate(log, listeners)
	d := g.Open(b, purpose, target)
	d.alone = true
	g.start()
	return d
}

// Open adds a door for callers that want rank target. Run, epoch, purpose and target tell doors apart.
func (g *Gate) Open(b Badge, purpose wire.Purpose, target uint32) *Door {
	d := &Door{Badge: b, purpose: purpose, target: target, Arrivals: make(chan Arrival), gate: g, closed: make(chan struct{})}
	g.mu.Lock()
	g.doors = append(g.doors, d)
	g.mu.Unlock()
	return d
}

// Close lets nobody in any more and drops what was not handed over. It closes the gate, too, if that was
// made with the door.
func (d *Door) Close() {
	d.once.Do(func() {
		close(d.closed)
		d.gate.mu.Lock()
		d.gate.doors = slices.DeleteFunc(d.gate.doors, func(o *Door) bool { return o == d })
		d.gate.mu.Unlock()
	})
	if d.alone {
		d.gate.Close()
	}
}

// departure is what a caller may still want of a door that was left.
type departure struct {
	run     wire.RunDigest
	epoch   uint64
	purpose wire.Purpose
	target  uint32
}

// maxLeft bounds what a gate remembers; the oldest is forgotten.
const maxLeft = 1024

// Leave closes the door, and callers who want it are told from then on that this rank has left, as long as
// the gate is open for others.
func (d *Door) Leave() {
	g := d.gate
	g.mu.Lock()
	if len(g.left) == maxLeft {
		g.left = slices.Delete(g.left, 0, 1)
	}
	g.left = append(g.left, departure{d.Run, d.Epoch, d.purpose, d.target})
	g.mu.Unlock()
	d.Close()
}
