package wire

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"net"
	"slices"
)

// Type is what a frame means.
type Type uint8

// The frame types.
const (
	Introduce Type = iota + 1 // client → server, first: who I am and where I listen
	Assign                    // root → rank: everybody is there, this is your parent
	Fault                     // any way: the group has failed, and why
	Bye                       // any way: I leave in order; nothing follows
	Up                        // child → parent: contributions of a subtree
	Down                      // parent → child: the contributions of all
	Request                   // client → store
	Reply                     // store → client
	Message                   // any way: what the users of a contact tell each other
)

// String names the type.
func (t Type) String() string {
	names := [...]string{"", "introduce", "assign", "fault", "bye", "up", "down", "request", "reply", "message"}
	if int(t) < len(names) && t > 0 {
		return names[t]
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Op is the collective that an Up or Down frame belongs to.
type Op uint8

// The operations.
const (
	NoOp Op = iota
	AllGather
	Barrier
)

// String names the operation.
func (o Op) String() string {
	switch o {
	case AllGather:
		return "allgather"
	case Barrier:
		return "barrier"
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Frame is one message of an open connection.
type Frame struct {
	Type    Type
	Op      Op
	Seq     uint64 // number of the collective, or of the store request
	Payload []byte
}

const (
	frameHead  = 16
	tagSize    = 16
	readBuffer = 4 << 10
	growth     = 1 << 20 // memory is taken for at most this much more than has arrived

	// maxControl bounds the payload of every frame but Up and Down.
	maxControl = 64 << 10
)

// Conn is an authenticated connection. One goroutine may send and one may receive at a time.
type Conn struct {
	nc net.Conn
	br *bufio.Reader

	// MaxData bounds the payload of Up, Down, Request and Reply frames in bytes. The default is that
	// of control frames, 64 KiB.
	MaxData int

	sendMAC, receiveMAC   hash.Hash
	sendCount, recvdCount uint64
	head                  [frameHead]byte
}

func newConn(nc net.Conn, br *bufio.Reader, sendKey, receiveKey []byte) *Conn {
	return &Conn{
		nc: nc, br: br, MaxData: maxControl,
		sendMAC: hmac.New(sha256.New, sendKey), receiveMAC: hmac.New(sha256.New, receiveKey),
	}
}

// Net returns the connection underneath, for deadlines, addresses and closing.
func (c *Conn) Net() net.Conn { return c.nc }

// Send writes one frame whose payload is f.Payload and then the parts of more. After an error the
// connection can no longer be used for sending. A frame of up to 64 KiB for which the kernel has room is sent even if the
// connection's deadline has passed: it bounds waiting, and a process that did not run for so long has not waited.
func (c *Conn) Send(f Frame, more ...[]byte) error {
	length := len(f.Payload)
	for _, p := range more {
		length += len(p)
	}
	head := make([]byte, 0, frameHead)
	head = binary.BigEndian.AppendUint32(head, uint32(length))
	head = append(head, byte(f.Type), byte(f.Op), 0, 0)
	head = binary.BigEndian.AppendUint64(head, f.Seq)

	parts := make(net.Buffers, 0, 3+len(more))
	parts = append(parts, head)
	if len(f.Payload) > 0 {
		parts = append(parts, f.Payload)
	}
	parts = append(parts, more...)
	parts = append(parts, tag(c.sendMAC, c.sendCount, parts...))
	c.sendCount++
	if length <= maxControl {
		flat := slices.Concat(parts...)
		n := push(c.nc, flat)
		if n == len(flat) {
			return nil
		}
		_, err := c.nc.Write(flat[n:])
		return err
	}
	_, err := parts.WriteTo(c.nc)
	return err
}

// Receive reads one frame and verifies its tag. Its payload is new memory.
func (c *Conn) Receive() (Frame, error) {
	if _, err := io.ReadFull(c.br, c.head[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{
		Type: Type(c.head[4]),
		Op:   Op(c.head[5]),
		Seq:  binary.BigEndian.Uint64(c.head[8:]),
	}
	length := int64(binary.BigEndian.Uint32(c.head[:]))
	if length > int64(c.limit(f.Type)) {
		return f, malformed("%v frame of %d bytes, at most %d allowed", f.Type, length, c.limit(f.Type))
	}
	payload, err := readGrowing(c.br, int(length))
	if err != nil {
		return f, noEOF(err)
	}
	var got [tagSize]byte
	if _, err := io.ReadFull(c.br, got[:]); err != nil {
		return f, noEOF(err)
	}
	if !hmac.Equal(got[:], tag(c.receiveMAC, c.recvdCount, c.head[:], payload)) {
		return f, malformed("%v frame with a wrong tag", f.Type)
	}
	c.recvdCount++
	if binary.BigEndian.Uint16(c.head[6:]) != 0 {
		return f, malformed("reserved bytes of a frame are not zero")
	}
	f.Payload = payload
	return f, nil
}

func (c *Conn) limit(t Type) int {
	switch t {
	case Up, Down, Request, Reply:
		return c.MaxData
	}
	return maxControl
}

// readGrowing reads n bytes; memory follows what has arrived, not what was announced.
func readGrowing(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, 0, min(n, growth))
	for len(buf) < n {
		if len(buf) == cap(buf) {
			bigger := make([]byte, len(buf), min(n, 2*cap(buf)))
			copy(bigger, buf)
			buf = bigger
		}
		k, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+k]
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// noEOF turns an end of file inside a frame into an unexpected one.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// tag authenticates the count-th frame of a direction.
func tag(m hash.Hash, count uint64, parts ...[]byte) []byte {
	m.Reset()
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], count)
	m.Write(n[:])
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(make([]byte, 0, sha256.Size))[:tagSize]
}
