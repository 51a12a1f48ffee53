package shm

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Messages travel over a SOCK_SEQPACKET socket, one a packet, all of 160 bytes, integers
// little-endian, unused fields zero. S is the listener's side, C the dialer's.
//
//	  0  4  "gshm"
//	  4  1  version, 1
//	  5  1  kind
//	  6  1  code
//	  7  1  zero
//	  8  4  endpoint    open: whom the dialer wants
//	 12  4  from        open: the dialer's endpoint
//	 16  4  depth       opened: entries of the completion ring
//	 20  4  zero
//	 24  8  key         mapRegion, mapped: key of the region
//	 32  8  length      mapRegion: bytes wanted; mapped: bytes of the region
//	 40 16  name        open: the dialer's device
//	 56 16  nonce       hello: S's; open: C's
//	 72 32  proof       open, opened: HMAC
//	104 56  zero
//
// The talk: S hello, C open, S opened with two descriptors (bell, completion ring) or refused. Then
// any number of: C mapRegion, S mapped, with a descriptor if code is 0. Either side says bye before it
// closes on purpose.
const (
	messageSize    = 160
	messageVersion = 1
)

type kind uint8

const (
	hello kind = iota + 1
	open
	opened
	refused
	mapRegion
	mapped
	bye
	lastKind = bye
)

// Codes of refused, mapped and bye.
const (
	codeOK       = 0
	codeGone     = 1 // refused: no such endpoint, or it is closed
	codeProof    = 2 // refused: the token does not match
	codeTaken    = 3 // refused: another endpoint is connected
	codeAccess   = 4 // mapped: no such region, or too long; bye: the dialer's access was refused
	codeResource = 5 // refused, mapped: out of descriptors or memory
)

type message struct {
	kind     kind
	code     uint8
	endpoint uint32
	from     uint32
	depth    uint32
	key      uint64
	length   uint64
	name     name
	nonce    [16]byte
	proof    [sha256.Size]byte
}

func (m *message) encode(b *[messageSize]byte) {
	*b = [messageSize]byte{4: messageVersion, 5: byte(m.kind), 6: m.code}
	copy(b[:], addressMagic[:])
	binary.LittleEndian.PutUint32(b[8:], m.endpoint)
	binary.LittleEndian.PutUint32(b[12:], m.from)
	binary.LittleEndian.PutUint32(b[16:], m.depth)
	binary.LittleEndian.PutUint64(b[24:], m.key)
	binary.LittleEndian.PutUint64(b[32:], m.length)
	copy(b[40:], m.name[:])
	copy(b[56:], m.nonce[:])
	copy(b[72:], m.proof[:])
}

func decodeMessage(b []byte) (message, error) {
	if len(b) != messageSize || [4]byte(b[:4]) != addressMagic {
		return message{}, errors.New("not a message of this protocol")
	}
	if b[4] != messageVersion {
		return message{}, fmt.Errorf("message of version %d, this is version %d", b[4], messageVersion)
	}
	m := message{
		kind: kind(b[5]), code: b[6],
		endpoint: binary.LittleEndian.Uint32(b[8:]),
		from:     binary.LittleEndian.Uint32(b[12:]),
		depth:    binary.LittleEndian.Uint32(b[16:]),
		key:      binary.LittleEndian.Uint64(b[24:]),
		length:   binary.LittleEndian.Uint64(b[32:]),
		name:     name(b[40:56]),
		nonce:    [16]byte(b[56:72]),
		proof:    [32]byte(b[72:104]),
	}
	var again [messageSize]byte
	m.encode(&again)
	if m.kind == 0 || m.kind > lastKind || !bytes.Equal(b, again[:]) { // a byte that must be zero is not
		return message{}, fmt.Errorf("malformed message of kind %d", m.kind)
	}
	return m, nil
}

// prove returns what shows that a side (kind open: the dialer, opened: the listener) knows the token,
// bound to this talk by the nonces of both and to the two endpoints.
func prove(t token, side kind, theirs [16]byte, m *message) [sha256.Size]byte {
	h := hmac.New(sha256.New, t[:])
	h.Write([]byte("gccl shm 1 "))
	h.Write([]byte{byte(side)})
	h.Write(theirs[:])
	h.Write(m.nonce[:])
	h.Write(m.name[:])
	var ids [8]byte
	binary.LittleEndian.PutUint32(ids[:], m.endpoint)
	binary.LittleEndian.PutUint32(ids[4:], m.from)
	h.Write(ids[:])
	return [sha256.Size]byte(h.Sum(nil))
}

func sameProof(a, b [sha256.Size]byte) bool { return hmac.Equal(a[:], b[:]) }
