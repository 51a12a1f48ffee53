package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/rdma"
	"golang.org/x/sync/errgroup"
)

// Config describes a mesh to be made.
type Config struct {
	Rank, Size int
	Geometry   Geometry
	// Device returns the device that carries the links to a peer. Ranks must choose alike: if p
	// reaches q over a provider, q reaches p over the same.
	Device func(peer int) rdma.Device
	// Bell is what this rank sleeps on. It belongs to the device whose peers ring it, if there is
	// one with that ability.
	Bell rdma.Bell
	// Describe names a rank for messages: "rank 3 (pid 4711 on host-b)".
	Describe func(rank int) string
	// NoMap uses the posted-write links even where memory could be mapped.
	NoMap bool
	// Touch is how many lanes' rings are touched beforehand, so that the first messages do not pay
	// for page faults. 0: none.
	Touch int
	// Sparse leaves out of the rings' memory what is not touched beforehand, where the device can.
	Sparse bool
	// Attach has peers that want it, too, read long messages in this process's memory, and reads in theirs.
	Attach bool
	// Lazy makes a mesh without peers: Join adds those that are wanted.
	Lazy bool
}

// Mesh is the links of one rank of a communicator. Its peers' links, Progress and Joining.Done belong to the goroutine
// that runs a collective; Failed and Fail may be called from anywhere until Close begins.
type Mesh struct {
	rank, size int
	geo        Geometry
	peers      []atomic.Pointer[Peer]  // nil: this rank itself, or none yet
	ports      atomic.Pointer[[]*port] // with joined peers, and those of first
	first      *Joining                // all peers of a mesh that is not lazy, until Connect
	retreated  []*Joining              // that were given up
	device     func(int) rdma.Device
	touched    int // lanes
	sparse     bool
	bell       rdma.Bell
	describe   func(int) string
	noMap      bool
	attach     bool
	fetched    uint64
	lazy       bool
	failed     atomic.Pointer[Notice]
	beats      int          // calls of Beat
	hurry      bool         // see Hurried
	life       sync.RWMutex // held by lost, which providers call at any time, while it reads the boards
	closed     bool
	cs         [64]rdma.Completion
}

// New makes a mesh. Unless it is lazy, it allocates the arenas and endpoints for all peers; Blob is then
// what the other ranks need for Connect.
func New(cfg Config) (*Mesh, error) {
	if err := cfg.Geometry.Check(); err != nil {
		return nil, err
	}
	m := &Mesh{rank: cfg.Rank, size: cfg.Size, geo: cfg.Geometry, bell: cfg.Bell, describe: cfg.Describe, noMap: cfg.NoMap, attach: cfg.Attach, lazy: cfg.Lazy,
		peers: make([]atomic.Pointer[Peer], cfg.Size), device: cfg.Device, touched: min(cfg.Touch, cfg.Geometry.Lanes), sparse: cfg.Sparse}
	m.ports.Store(new([]*port))
	if cfg.Lazy {
		return m, nil
	}
	var ranks []int
	for r := range cfg.Size {
		if r != cfg.Rank {
			ranks = append(ranks, r)
		}
	}
	var err error
	if m.first, err = m.Join(ranks); err != nil {
		return nil, err
	}
	return m, nil
}

// Blob is this rank's part of what ranks exchange before Connect: per peer the endpoint's address,
// the arena, the place of the peer's section in it and that of the pool, and the section's address in this process.
func (m *Mesh) Blob() []byte {
	var b []byte
	for r := range m.size {
		b = m.first.appendEntry(b, r)
	}
	return b
}

// entry is one peer's part of a blob.
type entry struct {
	addr   []byte
	remote rdma.RemoteRegion
	base   uint64 // of the section in the arena
	pool   uint64 // of the pools; 0: there are none
	at     uint64 // address of the section in the peer's process; 0: it is not to be read there
}

// entryBytes is the length of an entry without the address.
const entryBytes = 48

// decodeBlob returns the entry for rank me in the blob of another rank.
func decodeBlob(b []byte, size, me int) (e entry, err error) {
	for r := range size {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			return e, fmt.Errorf("link: blob ends in the address for rank %d", r)
		}
		b = b[k:]
		if n == 0 {
			continue
		}
		addr := b[:n]
		if b = b[n:]; len(b) < entryBytes {
			return e, fmt.Errorf("link: blob ends in the region for rank %d", r)
		}
		if r == me {
			e.addr = addr
			e.remote = rdma.RemoteRegion{Addr: binary.LittleEndian.Uint64(b), Key: binary.LittleEndian.Uint64(b[8:]), Len: binary.LittleEndian.Uint64(b[16:])}
			e.base, e.pool, e.at = binary.LittleEndian.Uint64(b[24:]), binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
		}
		b = b[entryBytes:]
	}
	if len(b) != 0 {
		return e, fmt.Errorf("link: %d bytes after the blob", len(b))
	}
	if e.addr == nil {
		return e, fmt.Errorf("link: no entry for rank %d", me)
	}
	return e, nil
}

// ConnectError is why a peer could not be connected.
type ConnectError struct {
	Rank int // the peer
	Err  error
}

// Error is Err's, which names the peer.
func (e *ConnectError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *ConnectError) Unwrap() error { return e.Err }

// Connect pairs every endpoint with its peer's. blobs[r] is the Blob of rank r. It returns when
// this rank may send; the ranks must meet once more (a barrier) before the first message, so
// that no message meets a rank that is not ready. If peers cannot be connected, the error is the *ConnectError of the
// lowest that failed by itself.
func (m *Mesh) Connect(ctx context.Context, blobs [][]byte) error {
	errs := make([]error, len(blobs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for r, b := range blobs {
		if r != m.rank {
			g.Go(func() error {
				e, err := decodeBlob(b, m.size, m.rank)
				if err != nil {
					err = fmt.Errorf("blob of rank %d: %w", r, err)
				} else {
					err = m.first.peers[r].connect(gctx, e)
				}
				if err != nil {
					errs[r] = &ConnectError{r, err}
				}
				return errs[r]
			})
		}
	}
	if first := g.Wait(); first != nil { // and Close releases them
		for _, err := range errs {
			if err != nil && (err == first || !errors.Is(err, first) && !errors.Is(err, context.Canceled)) { // else it was ended
				return err
			}
		}
		return first
	}
	m.first.Done()
	m.first = nil
	return nil
}

// Peer returns the peer of that rank, nil for this rank itself and for one that has not joined.
func (m *Mesh) Peer(rank int) *Peer { return m.peers[rank].Load() }

// each calls f for every peer that has joined.
func (m *Mesh) each(f func(*Peer)) {
	for _, pt := range *m.ports.Load() {
		for _, p := range pt.peers {
			f(p)
		}
	}
}

// wires are the links of the peers that have joined and are not mapped.
func (m *Mesh) wires() iter.Seq[*wire] {
	return func(yield func(*wire) bool) {
		for _, pt := range *m.ports.Load() {
			for _, w := range pt.wires {
				if !yield(w) {
					return
				}
			}
		}
	}
}

// Size returns the number of ranks.
func (m *Mesh) Size() int { return m.size }

// Geometry returns the shape of the rings.
func (m *Mesh) Geometry() Geometry { return m.geo }

// Bell returns what this rank sleeps on.
func (m *Mesh) Bell() rdma.Bell { return m.bell }

// NeedsProgress reports whether Progress does anything: whether some peer's memory is not mapped.
func (m *Mesh) NeedsProgress() bool {
	for _, pt := range *m.ports.Load() {
		if len(pt.endpoints) > 0 {
			return true
		}
	}
	return false
}

// PutBytes is the longest message for Sender.Put.
func (m *Mesh) PutBytes() int {
	if m.NeedsProgress() {
		return InlineBytes
	}
	return min(BriefBytes, m.geo.SlotBytes)
}

// Progress polls the completion queues of posted-write links and posts what waited for room. It
// reports whether anything happened.
func (m *Mesh) Progress() (bool, error) {
	any := false
	for _, pt := range *m.ports.Load() {
		if len(pt.endpoints) == 0 {
			continue
		}
		n, err := pt.cq.Poll(m.cs[:])
		if err != nil {
			return any, fmt.Errorf("completion queue of %s: %w", pt.dev.Attr().Provider, err)
		}
		for _, c := range m.cs[:n] {
			any = any || c.Kind != rdma.Wrote // nobody waits for one alone, and beats have them, too
			if pt.latest == nil || pt.latestID != c.Endpoint {
				pt.latest, pt.latestID = pt.endpoints[c.Endpoint], c.Endpoint
			}
			if p := pt.latest; p != nil {
				if err := p.wire.completed(c); err != nil {
					return any, err
				}
			}
		}
		for _, w := range pt.wires {
			w.retry()
		}
	}
	return any, nil
}

// awaited notes that something from this peer is missed, for the next Progress. It belongs to the goroutine
// that runs a collective.
func (p *Peer) awaited() {
	if q := p.port.attentive; q != nil {
		q.Attend(p.endpoint)
	}
}

// CanWait reports whether Wait would notice everything that this rank may wait for: all peers that
// have joined are reached over one queue that can be slept on.
func (m *Mesh) CanWait() bool {
	ports := *m.ports.Load()
	if len(ports) != 1 || len(ports[0].endpoints) != len(ports[0].peers) {
		return false
	}
	_, ok := ports[0].cq.(rdma.Waiter)
	return ok
}

// Wait blocks until Progress may move something, or for about d.
func (m *Mesh) Wait(d time.Duration) error {
	pt := (*m.ports.Load())[0]
	if err := pt.cq.(rdma.Waiter).Wait(d); err != nil {
		return fmt.Errorf("completion queue of %s: %w", pt.dev.Attr().Provider, err)
	}
	return nil
}

// Arm asks the posted-write links' queues to ring the bell when something arrives.
func (m *Mesh) Arm() error {
	for _, pt := range *m.ports.Load() {
		if len(pt.endpoints) > 0 {
			if err := pt.cq.Arm(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Failed returns why the mesh is broken, or nil. The first cause stays. It looks at the boards of all peers.
// What one has told it passes on to all, because that one may not reach them: the connection that broke may
// be the one between two ranks that live. A peer that joins meanwhile hears of it from here or from Joining.Done, which
// adds it before it looks for a cause, as this sets the cause before it goes through the peers.
func (m *Mesh) Failed() *Notice {
	if n := m.failed.Load(); n != nil {
		return n
	}
	for _, pt := range *m.ports.Load() {
		for _, p := range pt.peers {
			if n := p.heard(); n != nil && n.Cause != CauseClosed {
				if m.failed.CompareAndSwap(nil, n) {
					on := m.own(n)
					m.each(func(p *Peer) { p.tell(on) })
				}
				return m.failed.Load()
			}
		}
	}
	return nil
}

// own is a notice as this rank passes it on: peers take one only from the rank that it says tells it.
func (m *Mesh) own(n *Notice) *Notice {
	on := *n
	on.From = m.rank
	return &on
}

// Fail breaks the mesh for a cause and tells every peer, unless it is broken already. It returns
// the first cause. It never blocks.
func (m *Mesh) Fail(n *Notice) *Notice {
	if !m.failed.CompareAndSwap(nil, n) {
		return m.failed.Load()
	}
	m.each(func(p *Peer) { p.tell(n) })
	m.bell.Ring()
	return n
}

// lost is called by providers when a peer is gone.
func (m *Mesh) lost(p *Peer, err error) {
	m.life.RLock()
	defer m.life.RUnlock()
	if m.closed || p.dropped {
		return
	}
	n := &Notice{Cause: CauseLost, From: m.rank, Culprit: p.Rank, Text: fmt.Sprintf("%s: %v", m.describe(p.Rank), err)}
	p.Gone() // a goodbye counts more than the connection that broke after it
	p.ended.CompareAndSwap(nil, n)
	p.gone.CompareAndSwap(nil, p.ended.Load()) // the same, whoever else is here
	m.bell.Ring()
}

// Goodbye tells every peer that this rank leaves in good order. It is for before Close.
func (m *Mesh) Goodbye() {
	n := &Notice{Cause: CauseClosed, From: m.rank, Culprit: m.rank, Text: m.describe(m.rank) + " closed its communicator"}
	m.each(func(p *Peer) { p.tell(n) })
}

// Drained reports whether every posted write has left this rank's hands, so that nothing waits
// for it to poll again.
func (m *Mesh) Drained() bool {
	for _, pt := range *m.ports.Load() {
		for _, w := range pt.wires {
			if !w.leftAlone() && !w.drained() {
				return false
			}
		}
	}
	return true
}

// Acknowledged reports whether peers that are still there have acknowledged what was posted up to the
// latest notice, so that Close, which breaks connections, takes nothing away from them.
func (m *Mesh) Acknowledged() bool {
	for w := range m.wires() {
		if !w.acknowledged() {
			return false
		}
	}
	return true
}

// Close releases endpoints, queues and arenas. It never waits for a peer.
func (m *Mesh) Close() error {
	m.life.Lock()
	m.closed = true
	m.life.Unlock()
	var errs []error
	for _, pt := range *m.ports.Load() {
		errs = append(errs, pt.close())
	}
	if m.first != nil {
		errs = append(errs, m.first.Abandon())
	}
	for _, j := range m.retreated {
		errs = append(errs, j.Abandon())
	}
	return errors.Join(errs...)
}
