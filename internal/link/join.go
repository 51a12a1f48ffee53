package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gccl/gccl/rdma"
)

// port is a device as some peers of this mesh use it: one arena and one completion queue.
type port struct {
	dev       rdma.Device
	cq        rdma.CQ
	attentive rdma.Attentive // cq, if it is that
	arena     rdma.Region
	pools     []pool           // by lane, in the arena; nil: there are none
	section   int              // bytes of a peer's section
	peers     []*Peer          // in the order of their sections
	endpoints map[uint32]*Peer // wire peers by endpoint
	wires     []*wire          // of the same peers
	latest    *Peer            // whose completion came last; nil: nobody's
	latestID  uint32           // its endpoint's
}

// Joining is some peers on their way into a mesh: this rank's memory and endpoints for them. Blob is
// what each of them needs for its Connect. After Done they are the mesh's; without, Abandon releases them, or
// Retreat leaves them to the mesh's Close.
type Joining struct {
	m     *Mesh
	ports []*port
	peers map[int]*Peer
}

// Join prepares to add peers, none of which has joined before.
func (m *Mesh) Join(ranks []int) (*Joining, error) {
	j := &Joining{m: m, peers: make(map[int]*Peer, len(ranks))}
	byDevice := map[rdma.Device]*port{}
	for _, r := range ranks {
		dev := m.device(r)
		pt := byDevice[dev]
		if pt == nil {
			pt = &port{dev: dev, endpoints: map[uint32]*Peer{}}
			byDevice[dev] = pt
			j.ports = append(j.ports, pt)
		}
		p := &Peer{Rank: r, Provider: dev.Attr().Provider, mesh: m, port: pt}
		pt.peers = append(pt.peers, p)
		j.peers[r] = p
	}
	for _, pt := range j.ports {
		if err := m.open(pt); err != nil {
			return nil, errors.Join(err, j.Abandon())
		}
	}
	return j, nil
}

func (m *Mesh) open(pt *port) (err error) {
	name := pt.dev.Attr().Provider
	g := posted{m.geo}
	if pt.cq, err = pt.dev.NewCQ(len(pt.peers)*(g.recvDepth()+g.Lanes*(g.headers()+grantLines)+maxBeats), m.bell.Ring); err != nil {
		return fmt.Errorf("completion queue on %s: %w", name, err)
	}
	pt.attentive, _ = pt.cq.(rdma.Attentive)
	for _, p := range pt.peers {
		p.endpoint, err = pt.dev.NewEndpoint(pt.cq, rdma.EndpointOptions{
			RecvDepth: g.recvDepth(),
			OnLost:    func(err error) { m.lost(p, err) },
		})
		if err != nil {
			return fmt.Errorf("endpoint for rank %d on %s: %w", p.Rank, name, err)
		}
	}
	if pt.section = m.geo.sectionBytes(); !pt.peers[0].mappable() { // a device's endpoints are all alike
		pt.section = g.sectionBytes()
	}
	n := pt.sectionOffset(len(pt.peers))
	pooled := m.pooled(pt)
	if pooled {
		n += m.geo.poolBytes()
	}
	if pt.arena, err = m.alloc(pt.dev, n, "ring buffers"); err != nil {
		return fmt.Errorf("ring buffers on %s: %w", name, err)
	}
	for i, p := range pt.peers {
		p.section = pt.arena.Bytes()[pt.sectionOffset(i):][:pt.section]
	}
	if pooled {
		pt.layPools(m.geo)
	}
	return nil
}

// sectionOffset is where in the arena the section for the port's i-th peer begins.
func (pt *port) sectionOffset(i int) int { return arenaHead + i*pt.section }

// alloc gets memory; in a sparse mesh without pages, many of which may never be used: those of the lanes beyond
// the first, and of the rings between ranks that only ever send a few bytes. Whole, it may come in huge pages.
func (m *Mesh) alloc(dev rdma.Device, n int, purpose string) (rdma.Region, error) {
	if d, ok := dev.(rdma.SparseDevice); ok && m.sparse {
		return d.AllocSparse(n, purpose)
	}
	return dev.Alloc(n, purpose)
}

// wireTouch is the most that is visited of a peer's ring for posted writes, and as much again of what is
// staged for it.
const wireTouch = 16 << 20

// visit visits the pages that are used most of this rank's own section for a peer, or of what it stages for it.
func (p *Peer) visit(section []byte) {
	parts := p.mesh.geo.touched(section, p.mesh.touched)
	if !p.mappable() {
		parts = posted{p.mesh.geo}.touched(section, p.mesh.touched)
	}
	if p.mappable() || len(parts[0])+len(parts[1]) <= wireTouch {
		for _, b := range parts {
			visit(b)
		}
	}
}

// visit touches every page of memory whose words others may be changing. It gives the page to this
// process, and under a hypervisor that shadows page tables costs another fault, of 8 µs, for each.
func visit(b []byte) {
	for off := 0; off < len(b); off += 4096 {
		wordAt(b[off:]).Add(0)
	}
}

// Blob is what one of the peers needs for its Connect.
func (j *Joining) Blob(rank int) []byte { return j.appendEntry(nil, rank) }

// appendEntry writes what a peer needs behind b: the endpoint's address, the arena, the place of the
// peer's section in it, that of the pool, and the section's address. It writes an empty entry for a rank that is not joining.
func (j *Joining) appendEntry(b []byte, rank int) []byte {
	p := j.peers[rank]
	if p == nil {
		return binary.AppendUvarint(b, 0)
	}
	addr := p.endpoint.Address()
	b = binary.AppendUvarint(b, uint64(len(addr)))
	b = append(b, addr...)
	r := p.port.arena.Remote()
	at := p.port.sectionOffset(slices.Index(p.port.peers, p))
	for _, v := range []uint64{r.Addr, r.Key, r.Len, uint64(at), uint64(p.port.poolOffset(j.m.geo)), p.sectionAddress()} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// Connect pairs the endpoint for one of the peers with the peer's, of which blob is the Blob. Different
// peers may be connected at once. The two must hear from each other once more before the first message.
func (j *Joining) Connect(ctx context.Context, rank int, blob []byte) error {
	e, err := decodeBlob(blob, 1, 0)
	if err != nil {
		return fmt.Errorf("blob of rank %d: %w", rank, err)
	}
	return j.peers[rank].connect(ctx, e)
}

// Done makes the peers, which are all connected, the mesh's own. It is for the goroutine that runs
// collectives.
func (j *Joining) Done() {
	for _, pt := range j.ports {
		for _, p := range pt.peers {
			if p.wire != nil {
				pt.endpoints[p.endpoint.ID()] = p
				pt.wires = append(pt.wires, p.wire)
			}
		}
	}
	m := j.m
	ports := slices.Concat(*m.ports.Load(), j.ports)
	m.ports.Store(&ports)
	for r, p := range j.peers {
		m.peers[r].Store(p)
	}
	if n := m.failed.Load(); n != nil { // it may have been told to the others only
		on := m.own(n)
		for _, p := range j.peers {
			p.tell(on)
		}
	}
}

// Retreat gives the joining up. Peers that are connected, and may have gone on to use their links, are told
// why, and the links stay until the mesh is closed: a peer would take a link that breaks for a rank that is
// lost. No Connect may be in progress.
func (j *Joining) Retreat(n *Notice) {
	for _, p := range j.peers {
		p.tell(n)
	}
	j.m.retreated = append(j.m.retreated, j)
}

// Abandon releases everything.
func (j *Joining) Abandon() error {
	j.m.life.Lock() // a provider may be telling of a loss
	for _, p := range j.peers {
		p.dropped = true
	}
	j.m.life.Unlock()
	var errs []error
	for _, pt := range j.ports {
		errs = append(errs, pt.close())
	}
	j.ports = nil
	return errors.Join(errs...)
}

// close releases endpoints, queue and arena. It never waits for a peer.
func (pt *port) close() error {
	var errs []error
	for _, p := range pt.peers {
		if p.endpoint != nil {
			errs = append(errs, p.endpoint.Close())
		}
		if p.wire != nil {
			errs = append(errs, p.wire.staging.Close())
		}
	}
	if pt.cq != nil {
		errs = append(errs, pt.cq.Close())
	}
	if pt.arena != nil {
		errs = append(errs, pt.arena.Close())
	}
	return errors.Join(errs...)
}
