package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// address is what a peer must know to connect. Its wire form, little endian:
//
//	 0  "gvb1"
//	 4  link layer: 1 InfiniBand, 2 Ethernet
//	 5  active MTU: 1 (256 bytes) to 5 (4096 bytes)
//	 6  LID, 2 bytes
//	 8  data QP number, 12 its first packet sequence number (24 bits each)
//	16  control QP number, 20 its first packet sequence number
//	24  number of GIDs, 1 to 8; length of the name, 0 to 64
//	26  GIDs, 18 bytes each: type, prefix length, 16 bytes
//	    name of the device and port, for messages
type address struct {
	link, mtu     uint8
	lid           uint16
	data, control queueAddress
	gids          []gid
	name          string
}

// queueAddress names one queue pair.
type queueAddress struct{ qpn, psn uint32 }

const (
	addressMagic = "gvb1"
	addressFixed = 26
	maxName      = 64
)

func (a *address) encode() []byte {
	b := append([]byte(addressMagic), a.link, a.mtu)
	le := binary.LittleEndian
	b = le.AppendUint16(b, a.lid)
	for _, q := range []queueAddress{a.data, a.control} {
		b = le.AppendUint32(b, q.qpn)
		b = le.AppendUint32(b, q.psn)
	}
	name := a.name[:min(len(a.name), maxName)]
	b = append(b, byte(len(a.gids)), byte(len(name)))
	for _, g := range a.gids {
		b = append(b, byte(g.typ), byte(g.prefix))
		b = append(b, g.addr[:]...)
	}
	return append(b, name...)
}

var errAddress = errors.New("not the address of a verbs endpoint")

func decodeAddress(b []byte) (*address, error) {
	if len(b) < addressFixed || string(b[:4]) != addressMagic {
		return nil, fmt.Errorf("verbs: %d bytes: %w", len(b), errAddress)
	}
	le := binary.LittleEndian
	a := &address{
		link: b[4], mtu: b[5], lid: le.Uint16(b[6:]),
		data:    queueAddress{le.Uint32(b[8:]), le.Uint32(b[12:])},
		control: queueAddress{le.Uint32(b[16:]), le.Uint32(b[20:])},
	}
	gids, name := int(b[24]), int(b[25])
	for _, v := range []uint32{a.data.qpn, a.data.psn, a.control.qpn, a.control.psn} {
		if v > 0xffffff {
			return nil, fmt.Errorf("verbs: queue pair or sequence number %d: %w", v, errAddress)
		}
	}
	switch {
	case a.link != 1 && a.link != 2, a.mtu < 1 || a.mtu > 5, gids < 1 || gids > maxGIDs, name > maxName,
		len(b) != addressFixed+18*gids+name:
		return nil, fmt.Errorf("verbs: %d bytes, link layer %d, MTU %d, %d GIDs: %w", len(b), a.link, a.mtu, gids, errAddress)
	}
	b = b[addressFixed:]
	for range gids {
		g := gid{index: -1, typ: gidType(b[0]), prefix: int(b[1])}
		if g.typ != gidIB && g.typ != gidV2 || g.prefix > 128 {
			return nil, fmt.Errorf("verbs: GID type %d, prefix %d: %w", b[0], b[1], errAddress)
		}
		copy(g.addr[:], b[2:18])
		a.gids = append(a.gids, g)
		b = b[18:]
	}
	for _, c := range b { // it goes into messages and logs
		if c < 0x20 || c > 0x7e {
			return nil, fmt.Errorf("verbs: unprintable device name: %w", errAddress)
		}
	}
	a.name = string(b)
	return a, nil
}
