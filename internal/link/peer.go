package link

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
)

// Peer is everything between this rank and one other.
type Peer struct {
	Rank int
	// Provider names the provider that carries the links.
	Provider string

	mesh     *Mesh
	port     *port
	section  []byte // this rank's memory for the peer
	endpoint rdma.Endpoint
	memory   rdma.LoadStore // the endpoint, if the peer's memory is mapped; else nil
	attach   rdma.Attacher  // the same, if the peer's process can be read
	remote   rdma.RemoteRegion
	base     uint64 // offset of this rank's section in the peer's arena
	mapped   []byte // that section, if memory is set
	senders  []Sender
	receives []Receiver
	wire     *wire
	direct   bool
	windows  [][]byte
	shown    []shown // where the peer's memory is not mapped
	pool     []byte  // the peer's, if it has one that is mapped
	watch    watch
	told     atomic.Bool
	dropped  bool                   // it never joined, or this rank has broken the connection; the mesh's life guards it
	gone     atomic.Pointer[Notice] // the peer's end, as the peer told or the provider saw it
	ended    atomic.Pointer[Notice] // the latter, when the connection ended
}

// Gone returns why the peer will send nothing more, or nil: its process is lost, or it closed its
// communicator. What it sent before is still there to be received, so that a rank that left after
// its part of a call does not spoil the call for others. Only who waits for the peer must give up.
func (p *Peer) Gone() *Notice {
	if n := p.gone.Load(); n != nil {
		return n
	}
	if n := p.heard(); n != nil && n.Cause == CauseClosed {
		p.gone.CompareAndSwap(nil, n)
	}
	return p.gone.Load()
}

// Lost returns why the peer counts as failed, or nil: Gone, but for a peer that had left word why it gives up before its
// connection ended, where ranks break connections after a failed call (Mesh.Withdraw). It may live.
func (p *Peer) Lost() *Notice {
	n := p.Gone()
	if n == nil || n != p.ended.Load() || !p.withdraws() {
		return n
	}
	if w := p.heard(); w != nil && w.Cause != CauseClosed {
		return nil
	}
	return n
}

// Sender returns the link to the peer on a lane.
func (p *Peer) Sender(lane int) Sender { return p.senders[lane] }

// Receiver returns the link from the peer on a lane.
func (p *Peer) Receiver(lane int) Receiver { return p.receives[lane] }

// Mapped reports whether the peer's memory is mapped, so that spans can be lent and answers placed.
func (p *Peer) Mapped() bool { return p.memory != nil && !p.mesh.geo.Checksum }

// Direct reports whether messages can be sent from where they lie (Sender.CommitFrom).
func (p *Peer) Direct() bool { return p.direct && !p.mesh.geo.Checksum }

// MapWindow maps a region of the peer's if its memory can be mapped, for which it may wait for the peer; else it returns nil. The mesh
// may be in use meanwhile.
func (p *Peer) MapWindow(ctx context.Context, r rdma.RemoteRegion) ([]byte, error) {
	if p.memory == nil {
		return nil, nil
	}
	b, err := p.memory.Map(ctx, r)
	if err == nil {
		err = p.populate(b)
	}
	if err != nil {
		return nil, fmt.Errorf("map a window of rank %d: %w", p.Rank, err)
	}
	return b, nil
}

// SetWindow makes a region of the peer's, and this rank's own, known under a number from 1 up that both ranks use for
// them. mapped is the peer's (MapWindow); if it is nil, long transfers between windows go straight there.
// The regions are of the device that connects the two, and stay open until DropWindow.
func (p *Peer) SetWindow(id int, mine rdma.Region, r rdma.RemoteRegion, mapped []byte) {
	if p.memory == nil {
		p.show(id, mine, r)
		return
	}
	for len(p.windows) <= id {
		p.windows = append(p.windows, nil)
	}
	p.windows[id] = mapped
}

// populate makes a part of the peer's memory accessible now, rather than in the midst of a call.
func (p *Peer) populate(part []byte) error {
	if m, ok := p.memory.(rdma.Populator); ok {
		return m.Populate(part)
	}
	return nil
}

// DropWindow forgets a window.
func (p *Peer) DropWindow(id int) {
	if id < len(p.windows) {
		p.windows[id] = nil
	}
	if id < len(p.shown) {
		p.shown[id] = shown{}
	}
}

func (p *Peer) window(id uint64) []byte {
	if id == poolWindow {
		return p.pool
	}
	if id < uint64(len(p.windows)) {
		return p.windows[id]
	}
	return nil
}

// connect pairs the endpoint and makes the links.
func (p *Peer) connect(ctx context.Context, e entry) error {
	remote, base := e.remote, e.base
	if base > remote.Len || remote.Len-base < uint64(p.port.section) {
		return fmt.Errorf("link: rank %d offers %d bytes from %d, need %d", p.Rank, remote.Len, base, p.port.section)
	}
	if base%lineBytes != 0 {
		return fmt.Errorf("link: rank %d offers a section at %d, which is not on a cache line", p.Rank, base)
	}
	p.remote, p.base = remote, base
	if err := p.endpoint.Connect(ctx, e.addr); err != nil {
		return fmt.Errorf("connect to rank %d over %s: %w", p.Rank, p.Provider, err)
	}
	if p.mappable() {
		if err := p.connectMemory(ctx, e); err != nil {
			return fmt.Errorf("map the ring buffers of rank %d: %w", p.Rank, err)
		}
	} else if err := p.connectWire(); err != nil {
		return err
	}
	if p.mesh.geo.Checksum {
		p.checked()
	}
	return nil
}

// mappable says whether the peer and this rank are to use each other's memory.
func (p *Peer) mappable() bool {
	_, ok := p.endpoint.(rdma.LoadStore)
	return ok && !p.mesh.noMap
}

// connectMemory maps the peer's memory and makes the links over it.
func (p *Peer) connectMemory(ctx context.Context, e entry) error {
	g, lazy, ls := p.mesh.geo, p.port.dev.Attr().LazySignal, p.endpoint.(rdma.LoadStore)
	b, err := ls.Map(ctx, e.remote)
	if err != nil {
		return err
	}
	p.watch.word = wordAt(b)
	p.memory, p.mapped = ls, b[e.base:][:g.sectionBytes()]
	for _, part := range g.touched(p.mapped, p.mesh.touched) { // the other sections are other ranks'
		if err := p.populate(part); err != nil {
			return err
		}
	}
	if err := p.connectPool(b, e.pool); err != nil {
		return err
	}
	p.visit(p.section) // here, not when it is allocated: a hypervisor drops what it knows of pages that are not used for long
	for lane := range g.Lanes {
		s := &memSender{peer: p, ep: p.memory, lazy: lazy, ahead: 1, spread: g.spreadMost(), credit: wordAt(p.section[g.creditOffset(lane):]),
			mask: uint32(g.headers() - 1), marks: make([]uint32, g.headers()), slots: uint32(g.Slots - 1), spots: make([]int, g.Slots)}
		r := &memReceiver{peer: p, ep: p.memory, lazy: lazy, lane: lane, credit: wordAt(p.mapped[g.creditOffset(lane):]),
			mask: s.mask, batch: uint32(g.batch()), lag: uint32(g.lag())}
		for i := range g.headers() {
			off := g.headerOffset(lane, i)
			s.headers, r.headers = append(s.headers, headerAt(p.mapped[off:])), append(r.headers, headerAt(p.section[off:]))
			s.lines, r.lines = append(s.lines, &s.headers[i].pub), append(r.lines, &r.headers[i].pub)
		}
		off := g.payloadOffset(lane)
		r.payloads = p.section[off:][:g.Slots*g.roomBytes()]
		for slot := range g.Slots {
			s.payloads = append(s.payloads, p.mapped[off+slot*g.roomBytes():][:g.roomBytes():g.roomBytes()])
		}
		s.back, r.back = r, s
		p.senders, p.receives = append(p.senders, s), append(p.receives, r)
	}
	p.attachTo(e.at)
	return nil
}

// tell leaves a notice on the peer's board, once.
func (p *Peer) tell(n *Notice) {
	if !p.told.CompareAndSwap(false, true) {
		return
	}
	if p.memory != nil {
		n.encode(p.mapped)
		wordAt(p.mapped).Store(1)
		p.memory.Signal()
	} else if p.wire != nil {
		p.wire.tell(n)
	}
}

// heard returns the notice on this rank's board, if the peer left one.
func (p *Peer) heard() *Notice {
	switch {
	case p.wire != nil:
		if !p.wire.noticed.Load() {
			return nil
		}
	case p.section == nil || wordAt(p.section).Load() == 0:
		return nil
	}
	n, err := decodeNotice(p.section, p.Rank, p.mesh.size)
	if err != nil {
		return &Notice{Cause: CauseInternal, From: p.Rank, Culprit: p.Rank, Text: err.Error()}
	}
	return n
}
