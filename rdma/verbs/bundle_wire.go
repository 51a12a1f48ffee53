package verbs

import (
	"encoding/binary"
	"fmt"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/internal/rail"
)

// The immediates of a bundle's own writes: two bits of kind, six of round, 24 of a number.
//
//	piece         of a long write, by a rail that does not lead: how many were cut in this round, it included
//	announcement  a write with immediate has been written: which one, of those
//	lost          this end has given rails up: how many, in all
//	again         what follows begins again: after how many lost rails, which is the round
const (
	bundlePiece = iota
	bundleAnnounce
	bundleLostRails
	bundleAgain

	numberBits = 24
	numberMask = 1<<numberBits - 1
)

func bundleImm(kind, round int, number uint64) uint32 {
	return uint32(kind)<<30 | uint32(round)<<numberBits | uint32(number&numberMask)
}

// An inbox has a slot for each write with immediate that may be unpolled, then one for each lost rail's "lost", then the
// same for "again". The words of a slot, little endian:
//
//	announcement  0 number of the write, 8 which one of those with immediate, 16 its immediate, 20 bytes,
//	              24 long writes of the round, 28 round
//	lost          0 the rails that are lost, 8 writes delivered
//	again         0 the rails that are lost, 8 the write that it begins with, 16 which one of those with immediate is the next
const (
	slotBytes   = 64
	slotUsed    = 32
	maxInbox    = 1 << 20
	noticeSends = 2*rail.Max + 2 // places that a send queue has for lost and again
	noNumber    = 1<<64 - 1      // of a write that is not the user's
)

func inboxBytes(depth int) int { return (depth + 2*(rail.Max+1)) * slotBytes }

// lostSlot and againSlot are where, behind the announcements, an end says something after n lost rails.
func lostSlot(n int) int  { return n }
func againSlot(n int) int { return rail.Max + 1 + n }

type announcement struct {
	seq, nth   uint64
	imm, bytes uint32
	stripes    uint32
	round      uint32
}

func (a *announcement) encode(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, a.seq)
	le.PutUint64(b[8:], a.nth)
	le.PutUint32(b[16:], a.imm)
	le.PutUint32(b[20:], a.bytes)
	le.PutUint32(b[24:], a.stripes)
	le.PutUint32(b[28:], a.round)
}

func decodeAnnouncement(b []byte) announcement {
	le := binary.LittleEndian
	return announcement{le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:]), le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:])}
}

// bundleAddress is what a peer must know to connect a bundle. Its wire form, little endian:
//
//	 0  "gvr1"
//	 4  number of rails, 1 to 16; number of ports, 1 to 2: rail i is on port i modulo that
//	 6  depth of the inbox, 4 bytes
//	10  the inbox: address, keys, length, 8 bytes each
//	34  the rails: for each, length of its address, 2 bytes, and the address
type bundleAddress struct {
	ports, depth int
	inbox        rdma.RemoteRegion
	rails        [][]byte
}

const (
	bundleMagic = "gvr1"
	bundleFixed = 34
)

func (b *bundle) Address() []byte {
	a := bundleAddress{ports: len(b.dev.ports), depth: b.opts.RecvDepth, inbox: b.inbox.Remote()}
	for _, e := range b.subs {
		a.rails = append(a.rails, e.Address())
	}
	return a.encode()
}

func (a *bundleAddress) encode() []byte {
	le := binary.LittleEndian
	out := append([]byte(bundleMagic), byte(len(a.rails)), byte(a.ports))
	out = le.AppendUint32(out, uint32(a.depth))
	for _, x := range []uint64{a.inbox.Addr, a.inbox.Key, a.inbox.Len} {
		out = le.AppendUint64(out, x)
	}
	for _, r := range a.rails {
		out = append(le.AppendUint16(out, uint16(len(r))), r...)
	}
	return out
}

func decodeBundleAddress(b []byte) (*bundleAddress, error) {
	if len(b) < bundleFixed || string(b[:4]) != bundleMagic {
		return nil, fmt.Errorf("verbs: %d bytes: %w of several queue pairs: is their number the same on both ends?", len(b), errAddress)
	}
	le := binary.LittleEndian
	n := int(b[4])
	a := &bundleAddress{
		ports: int(b[5]), depth: int(le.Uint32(b[6:])),
		inbox: rdma.RemoteRegion{Addr: le.Uint64(b[10:]), Key: le.Uint64(b[18:]), Len: le.Uint64(b[26:])},
	}
	bad := fmt.Errorf("verbs: %d bytes, %d rails, %d ports, inbox of %d: %w", len(b), n, a.ports, a.depth, errAddress)
	if n < 1 || n > rail.Max || a.ports < 1 || a.ports > maxPorts || a.depth < 1 || a.depth > maxInbox || a.inbox.Len != uint64(inboxBytes(a.depth)) {
		return nil, bad
	}
	b = b[bundleFixed:]
	for range n {
		if len(b) < 2 || len(b)-2 < int(le.Uint16(b)) {
			return nil, bad
		}
		one := b[2:][:le.Uint16(b)]
		if _, err := decodeAddress(one); err != nil {
			return nil, err
		}
		a.rails = append(a.rails, one)
		b = b[2+len(one):]
	}
	if len(b) > 0 {
		return nil, bad
	}
	return a, nil
}
