package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
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
	// for page faults.
	Touch int
}

// Mesh is the links of one rank of a communicator. Its peers' links, Progress and Failed's slow
// path belong to the goroutine that runs a collective; Fail may be called from anywhere.
type Mesh struct {
	rank, size int
	geo        Geometry
	peers      []*Peer
	ports      []*port
	bell       rdma.Bell
	describe   func(int) string
	noMap      bool
	failed     atomic.Pointer[Notice]
	beats      int          // calls of Beat
	life       sync.RWMutex // held by lost, which providers call at any time, while it reads the boards
	closed     bool
	cs         [64]rdma.Completion
}

// port is a device as this mesh uses it: one arena and one completion queue.
type port struct {
	dev       rdma.Device
	cq        rdma.CQ
	arena     rdma.Region
	peers     []int            // ranks in the order of their sections
	endpoints map[uint32]*Peer // wire peers by endpoint
}

// New allocates the arenas and endpoints of a mesh. Blob is what the other ranks need for Connect.
func New(cfg Config) (*Mesh, error) {
	if err := cfg.Geometry.Check(); err != nil {
		return nil, err
	}
	m := &Mesh{rank: cfg.Rank, size: cfg.Size, geo: cfg.Geometry, bell: cfg.Bell, describe: cfg.Describe, noMap: cfg.NoMap,
		peers: make([]*Peer, cfg.Size)}
	byDevice := map[rdma.Device]*port{}
	for r := range cfg.Size {
		if r == cfg.Rank {
			continue
		}
		dev := cfg.Device(r)
		pt := byDevice[dev]
		if pt == nil {
			pt = &port{dev: dev, endpoints: map[uint32]*Peer{}}
			byDevice[dev] = pt
			m.ports = append(m.ports, pt)
		}
		pt.peers = append(pt.peers, r)
		m.peers[r] = &Peer{Rank: r, Provider: dev.Attr().Provider, mesh: m, port: pt}
	}
	for _, pt := range m.ports {
		if err := m.open(pt); err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.touch(pt, min(cfg.Touch, m.geo.Lanes))
	}
	return m, nil
}

func (m *Mesh) open(pt *port) (err error) {
	name := pt.dev.Attr().Provider
	if pt.cq, err = pt.dev.NewCQ(len(pt.peers)*(m.geo.recvDepth()+m.geo.Lanes*m.geo.Slots+maxBeats), m.bell.Ring); err != nil {
		return fmt.Errorf("completion queue on %s: %w", name, err)
	}
	if pt.arena, err = pt.dev.Alloc(m.geo.ArenaBytes(len(pt.peers)), "ring buffers"); err != nil {
		return fmt.Errorf("ring buffers on %s: %w", name, err)
	}
	for i, r := range pt.peers {
		p := m.peers[r]
		p.section = pt.arena.Bytes()[4096+i*m.geo.sectionBytes():][:m.geo.sectionBytes()]
		p.endpoint, err = pt.dev.NewEndpoint(pt.cq, rdma.EndpointOptions{
			RecvDepth: m.geo.recvDepth(),
			OnLost:    func(err error) { m.lost(r, err) },
		})
		if err != nil {
			return fmt.Errorf("endpoint for rank %d on %s: %w", r, name, err)
		}
	}
	return nil
}

// touch writes to every page of the first lanes' rings. Nobody else has the memory yet.
func (m *Mesh) touch(pt *port, lanes int) {
	const page = 4096
	for i := range pt.peers {
		section := pt.arena.Bytes()[page+i*m.geo.sectionBytes():]
		for off := 0; off < noticeBytes+lanes*m.geo.laneBytes(); off += page {
			section[off] = 0
		}
	}
}

// Blob is this rank's part of what ranks exchange before Connect: per peer the endpoint's address,
// the arena and the place of the peer's section in it.
func (m *Mesh) Blob() []byte {
	var b []byte
	for _, p := range m.peers {
		if p == nil {
			b = binary.AppendUvarint(b, 0)
			continue
		}
		addr := p.endpoint.Address()
		b = binary.AppendUvarint(b, uint64(len(addr)))
		b = append(b, addr...)
		r := p.port.arena.Remote()
		for _, v := range []uint64{r.Addr, r.Key, r.Len, p.sectionOffset()} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	return b
}

func (p *Peer) sectionOffset() uint64 {
	for i, r := range p.port.peers {
		if r == p.Rank {
			return uint64(4096 + i*p.mesh.geo.sectionBytes())
		}
	}
	panic("link: peer without a section")
}

// entry is one peer's part of a blob.
type entry struct {
	addr   []byte
	remote rdma.RemoteRegion
	base   uint64
}

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
		if b = b[n:]; len(b) < 32 {
			return e, fmt.Errorf("link: blob ends in the region for rank %d", r)
		}
		if r == me {
			e.addr = addr
			e.remote = rdma.RemoteRegion{Addr: binary.LittleEndian.Uint64(b), Key: binary.LittleEndian.Uint64(b[8:]), Len: binary.LittleEndian.Uint64(b[16:])}
			e.base = binary.LittleEndian.Uint64(b[24:])
		}
		b = b[32:]
	}
	if len(b) != 0 {
		return e, fmt.Errorf("link: %d bytes after the blob", len(b))
	}
	if e.addr == nil {
		return e, fmt.Errorf("link: no entry for rank %d", me)
	}
	return e, nil
}

// Connect pairs every endpoint with its peer's. blobs[r] is the Blob of rank r. It returns when
// this rank may send; the ranks must meet once more (a barrier) before the first message, so
// that no message meets a rank that is not ready.
func (m *Mesh) Connect(ctx context.Context, blobs [][]byte) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		g.Go(func() error {
			e, err := decodeBlob(blobs[p.Rank], m.size, m.rank)
			if err != nil {
				return fmt.Errorf("blob of rank %d: %w", p.Rank, err)
			}
			return p.connect(ctx, e.addr, e.remote, e.base)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range m.peers {
		if p != nil && p.wire != nil {
			p.port.endpoints[p.endpoint.ID()] = p
		}
	}
	return nil
}

// Peer returns the peer of that rank, nil for this rank itself.
func (m *Mesh) Peer(rank int) *Peer { return m.peers[rank] }

// Size returns the number of ranks.
func (m *Mesh) Size() int { return m.size }

// Geometry returns the shape of the rings.
func (m *Mesh) Geometry() Geometry { return m.geo }

// Bell returns what this rank sleeps on.
func (m *Mesh) Bell() rdma.Bell { return m.bell }

// NeedsProgress reports whether Progress does anything: whether some peer's memory is not mapped.
func (m *Mesh) NeedsProgress() bool {
	for _, pt := range m.ports {
		if len(pt.endpoints) > 0 {
			return true
		}
	}
	return false
}

// Progress polls the completion queues of posted-write links and posts what waited for room. It
// reports whether anything happened.
func (m *Mesh) Progress() (bool, error) {
	any := false
	for _, pt := range m.ports {
		if len(pt.endpoints) == 0 {
			continue
		}
		n, err := pt.cq.Poll(m.cs[:])
		if err != nil {
			return any, fmt.Errorf("completion queue of %s: %w", pt.dev.Attr().Provider, err)
		}
		for _, c := range m.cs[:n] {
			if p := pt.endpoints[c.Endpoint]; p != nil {
				if err := p.wire.completed(c); err != nil {
					return any, err
				}
			}
		}
		any = any || n > 0
		for _, p := range pt.endpoints {
			p.wire.retry()
		}
	}
	return any, nil
}

// CanWait reports whether Wait would notice everything that this rank may wait for: all peers are
// reached over one queue that can be slept on.
func (m *Mesh) CanWait() bool {
	if len(m.ports) != 1 || len(m.ports[0].endpoints) != m.size-1 {
		return false
	}
	_, ok := m.ports[0].cq.(rdma.Waiter)
	return ok
}

// Wait blocks until Progress may move something, or for about d.
func (m *Mesh) Wait(d time.Duration) error {
	if err := m.ports[0].cq.(rdma.Waiter).Wait(d); err != nil {
		return fmt.Errorf("completion queue of %s: %w", m.ports[0].dev.Attr().Provider, err)
	}
	return nil
}

// Arm asks the posted-write links' queues to ring the bell when something arrives.
func (m *Mesh) Arm() error {
	for _, pt := range m.ports {
		if len(pt.endpoints) > 0 {
			if err := pt.cq.Arm(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Failed returns why the mesh is broken, or nil. The first cause stays. It looks at the boards of all peers.
func (m *Mesh) Failed() *Notice {
	if n := m.failed.Load(); n != nil {
		return n
	}
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		if n := p.heard(); n != nil && n.Cause != CauseClosed {
			m.failed.CompareAndSwap(nil, n)
			return m.failed.Load()
		}
	}
	return nil
}

// Fail breaks the mesh for a cause and tells every peer, unless it is broken already. It returns
// the first cause. It never blocks.
func (m *Mesh) Fail(n *Notice) *Notice {
	if !m.failed.CompareAndSwap(nil, n) {
		return m.failed.Load()
	}
	for _, p := range m.peers {
		if p != nil && (p.memory != nil || p.wire != nil) {
			p.tell(n)
		}
	}
	m.bell.Ring()
	return n
}

// lost is called by providers when a peer is gone.
func (m *Mesh) lost(rank int, err error) {
	m.life.RLock()
	defer m.life.RUnlock()
	if m.closed {
		return
	}
	n := &Notice{Cause: CauseLost, From: m.rank, Culprit: rank, Text: fmt.Sprintf("%s: %v", m.describe(rank), err)}
	p := m.peers[rank]
	p.Gone() // a goodbye counts more than the connection that broke after it
	p.gone.CompareAndSwap(nil, n)
	m.bell.Ring()
}

// Goodbye tells every peer that this rank leaves in good order. It is for before Close.
func (m *Mesh) Goodbye() {
	n := &Notice{Cause: CauseClosed, From: m.rank, Culprit: m.rank, Text: m.describe(m.rank) + " closed its communicator"}
	for _, p := range m.peers {
		if p != nil && (p.memory != nil || p.wire != nil) {
			p.tell(n)
		}
	}
}

// Drained reports whether every posted write has left this rank's hands, so that nothing waits
// for it to poll again.
func (m *Mesh) Drained() bool {
	for _, pt := range m.ports {
		for _, p := range pt.endpoints {
			if !p.wire.drained() {
				return false
			}
		}
	}
	return true
}

// Acknowledged reports whether peers that are still there have acknowledged what was posted up to the
// latest notice, so that Close, which breaks connections, takes nothing away from them.
func (m *Mesh) Acknowledged() bool {
	for _, pt := range m.ports {
		for _, p := range pt.endpoints {
			if !p.wire.acknowledged() {
				return false
			}
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
	for _, p := range m.peers {
		if p == nil {
			continue
		}
		if p.endpoint != nil {
			errs = append(errs, p.endpoint.Close())
		}
		if p.wire != nil {
			errs = append(errs, p.wire.staging.Close())
		}
	}
	for _, pt := range m.ports {
		if pt.cq != nil {
			errs = append(errs, pt.cq.Close())
		}
		if pt.arena != nil {
			errs = append(errs, pt.arena.Close())
		}
	}
	return errors.Join(errs...)
}
