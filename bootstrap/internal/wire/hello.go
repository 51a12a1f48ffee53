package wire

import (
	"crypto/sha256"
	"encoding/binary"
)

// Sizes of the handshake's messages in bytes.
const (
	headSize      = 8
	helloSize     = headSize + 72
	challengeSize = headSize + 64
	proofSize     = headSize + 32
	nonceSize     = 32
	epochSize     = 8
)

// RunDigest stands for a run id on the wire.
type RunDigest [16]byte

// DigestRun returns the digest of a run id.
func DigestRun(runID string) RunDigest {
	sum := sha256.Sum256(append([]byte("gccl run id\x00"), runID...))
	return RunDigest(sum[:16])
}

// Hello is the first message of a connection, from the side that dialled.
type Hello struct {
	Purpose Purpose
	Run     RunDigest
	Epoch   uint64
	Rank    uint32 // the caller
	Size    uint32 // of the communicator, as the caller believes
	Target  uint32 // the rank that the caller wants to reach
	PID     uint32 // of the caller, for messages
	Nonce   [nonceSize]byte
}

func appendHead(b []byte, kind byte, arg uint16) []byte {
	b = append(b, Magic...)
	b = append(b, Version, kind)
	return binary.BigEndian.AppendUint16(b, arg)
}

// Append writes h behind b.
func (h *Hello) Append(b []byte) []byte {
	b = appendHead(b, msgHello, uint16(h.Purpose))
	b = append(b, h.Run[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Epoch)
	b = binary.BigEndian.AppendUint32(b, h.Rank)
	b = binary.BigEndian.AppendUint32(b, h.Size)
	b = binary.BigEndian.AppendUint32(b, h.Target)
	b = binary.BigEndian.AppendUint32(b, h.PID)
	return append(b, h.Nonce[:]...)
}

// ParseHello reads a Hello from exactly its bytes. The error is a [*Refused] if the message is of
// another version.
func ParseHello(b []byte) (Hello, error) {
	var h Hello
	if len(b) != helloSize {
		return h, malformed("hello of %d bytes", len(b))
	}
	kind, arg, err := parseHead(b[:headSize])
	if err != nil {
		return h, err
	}
	if kind != msgHello {
		return h, malformed("message type %d instead of hello", kind)
	}
	h.Purpose = Purpose(arg)
	b = b[headSize:]
	copy(h.Run[:], b)
	h.Epoch = binary.BigEndian.Uint64(b[16:])
	h.Rank = binary.BigEndian.Uint32(b[24:])
	h.Size = binary.BigEndian.Uint32(b[28:])
	h.Target = binary.BigEndian.Uint32(b[32:])
	h.PID = binary.BigEndian.Uint32(b[36:])
	copy(h.Nonce[:], b[40:])
	return h, nil
}

// parseHead reads the eight bytes that open each handshake message.
func parseHead(b []byte) (kind byte, arg uint16, err error) {
	if string(b[:4]) != Magic {
		return 0, 0, malformed("not this protocol (starts with %q)", b[:4])
	}
	if b[4] != Version {
		return 0, 0, &Refused{Code: OtherVersion}
	}
	return b[5], binary.BigEndian.Uint16(b[6:]), nil
}
