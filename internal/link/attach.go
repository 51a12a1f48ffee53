package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gccl/gccl/rdma"
)

// Between processes of one host that may read each other's memory (rdma.Attacher), long messages need no slot: the sender lends
// the bytes where they lie, in a message that says their address, and the receiver has the kernel copy them from there. It
// is as with spans of registered memory (Lender), but that nothing need be registered, and nothing is mapped.
//
// A receiver that can read its peer's memory says so in the peer's arena when the two are connected. Who finds nothing there
// uses slots.

// farWindow is the window of a lent span that is an address of the sender's process.
const farWindow = 1<<63 | 1

// attachWord is where, in the line that has the credit of a rank's first lane, the peer says that it reads this rank's memory.
const attachWord = 8

// Attached reports whether the peer reads this rank's memory: Sender is a DirectSender then.
func (p *Peer) Attached() bool {
	return p.Mapped() && p.mesh.attach && wordAt(p.section[p.mesh.geo.creditOffset(0)+attachWord:]).Load() != 0
}

// sectionAddress is where the section for the peer begins in this process; 0: the peer is not to read there.
func (p *Peer) sectionAddress() uint64 {
	if _, ok := p.endpoint.(rdma.Attacher); !ok || !p.mesh.attach || !p.mappable() || p.mesh.geo.Checksum {
		return 0
	}
	return addressOf(p.section)
}

// attachTo finds out whether this rank can read the peer's memory at the address of its section there, by what it writes to the
// section before, and tells the peer.
func (p *Peer) attachTo(section uint64) {
	a, ok := p.memory.(rdma.Attacher)
	if !ok || !p.mesh.attach || section == 0 {
		return
	}
	g := p.mesh.geo
	at := g.payloadOffset(0)
	var want, got [16]byte
	binary.NativeEndian.PutUint64(want[:], rand.Uint64())
	binary.NativeEndian.PutUint64(want[8:], rand.Uint64())
	copy(p.mapped[at:], want[:])
	if err := a.Attach(got[:], section+uint64(at)); err != nil || got != want {
		return
	}
	p.attach = a
	wordAt(p.mapped[g.creditOffset(0)+attachWord:]).Store(1)
}

// Fetch implements FarReceiver.
func (r *memReceiver) Fetch(dst []byte) (ok bool, err error) { return r.fetch(&r.cur, dst) }

func (r *memReceiver) fetch(m *Message, dst []byte) (ok bool, err error) {
	switch err = r.peer.attach.Attach(dst, m.addr); {
	case errors.Is(err, rdma.ErrPeerLost):
		return false, nil
	case err != nil && r.peer.mesh.Failed() != nil: // who lent it has it back, and may have unmapped it
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read what rank %d lends (GCCL_CMA=0 has it copied): %w", r.peer.Rank, err)
	}
	r.peer.mesh.fetched += uint64(len(dst))
	return true, nil
}

// Fetched is how many bytes this rank has read in its peers' processes.
func (m *Mesh) Fetched() uint64 { return m.fetched }
