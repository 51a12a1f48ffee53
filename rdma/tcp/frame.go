package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// maxMessage is the longest write. Its length has 32 bits on the wire; verbs allow 2³¹.
const maxMessage = 1 << 30

// headerLen is the length of a frame's header. The payload follows it.
const headerLen = 48

// frameType says what a frame is.
type frameType uint8

const (
	frameWrite frameType = 1 // a piece of a write
	frameFail  frameType = 2 // the sender refuses the peer's frames and ends the connection
	frameBye   frameType = 3 // the sender has closed its endpoint

	// With several sockets only, see package rail: seq is a number of writes.
	frameLanded frameType = 4 // so many have landed
	frameLost   frameType = 5 // the sender has given up the sockets imm; so many had landed
	frameAgain  frameType = 6 // what follows on this socket begins again there, for the imm-th time
)

// Flags of a write frame.
const (
	flagImm      = 1 << 0 // the write completes at the receiver, with imm
	flagChecksum = 1 << 1 // crc is that of the payload
	flagAck      = 1 << 2 // the sender waits to be told that the write has landed
)

// failCode says what a frameFail refuses.
type failCode uint32

const (
	failAccess   failCode = 1 // no such region, or a range outside it
	failChecksum failCode = 2 // the payload's checksum is wrong
	failProtocol failCode = 3 // a frame that this version does not allow
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame is what every malformed header is.
var errFrame = errors.New("malformed frame")

// header is a frame's header, decoded. docs/wire-tcp.md gives its bytes.
type header struct {
	kind   frameType
	flags  uint8
	imm    uint32 // of other frames: see there; of a frameFail: the failCode
	key    uint64
	addr   uint64 // in the region's own count of addresses
	length uint32 // payload bytes of this frame
	total  uint32 // payload bytes of the whole write
	seq    uint64 // of the write within its endpoint, from 0
	crc    uint32
}

// put writes the header's headerLen bytes to b.
func (h *header) put(b []byte) {
	b = b[:headerLen]
	b[0], b[1], b[2], b[3] = byte(h.kind), h.flags, 0, 0
	binary.LittleEndian.PutUint32(b[4:], h.imm)
	binary.LittleEndian.PutUint64(b[8:], h.key)
	binary.LittleEndian.PutUint64(b[16:], h.addr)
	binary.LittleEndian.PutUint32(b[24:], h.length)
	binary.LittleEndian.PutUint32(b[28:], h.total)
	binary.LittleEndian.PutUint64(b[32:], h.seq)
	binary.LittleEndian.PutUint32(b[40:], h.crc)
	binary.LittleEndian.PutUint32(b[44:], crc32.Checksum(b[:44], castagnoli))
}

// append adds the header's bytes to b.
func (h *header) append(b []byte) []byte {
	n := len(b)
	b = append(b, make([]byte, headerLen)...)
	h.put(b[n:])
	return b
}

// parse reads a header from the first headerLen bytes of b, which come from the network. Nothing in
// h may be used when it fails.
func (h *header) parse(b []byte) error {
	b = b[:headerLen]
	if got, want := crc32.Checksum(b[:44], castagnoli), binary.LittleEndian.Uint32(b[44:]); got != want {
		return fmt.Errorf("%w: header checksum %#08x, computed %#08x", errFrame, want, got)
	}
	*h = header{
		kind:   frameType(b[0]),
		flags:  b[1],
		imm:    binary.LittleEndian.Uint32(b[4:]),
		key:    binary.LittleEndian.Uint64(b[8:]),
		addr:   binary.LittleEndian.Uint64(b[16:]),
		length: binary.LittleEndian.Uint32(b[24:]),
		total:  binary.LittleEndian.Uint32(b[28:]),
		seq:    binary.LittleEndian.Uint64(b[32:]),
		crc:    binary.LittleEndian.Uint32(b[40:]),
	}
	if b[2] != 0 || b[3] != 0 {
		return fmt.Errorf("%w: reserved bytes %#02x %#02x", errFrame, b[2], b[3])
	}
	switch h.kind {
	case frameWrite:
		switch {
		case h.flags&^(flagImm|flagChecksum|flagAck) != 0:
			return fmt.Errorf("%w: flags %#02x", errFrame, h.flags)
		case h.length > h.total || h.total > maxMessage || (h.length == 0 && h.total != 0):
			return fmt.Errorf("%w: piece of %d bytes of a write of %d", errFrame, h.length, h.total)
		}
	case frameFail, frameBye, frameLanded, frameLost, frameAgain:
		if h.flags != 0 || h.length != 0 || h.total != 0 {
			return fmt.Errorf("%w: type %d with flags %#02x, length %d", errFrame, h.kind, h.flags, h.length)
		}
	default:
		return fmt.Errorf("%w: type %d", errFrame, h.kind)
	}
	return nil
}
