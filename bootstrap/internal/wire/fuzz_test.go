package wire

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

func newReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, readBuffer) }

// The rest of net.Conn, which a Conn calls on none of the paths under test.
func (capture) Close() error                     { return nil }
func (capture) LocalAddr() net.Addr              { return nil }
func (capture) RemoteAddr() net.Addr             { return nil }
func (capture) SetDeadline(time.Time) error      { return nil }
func (capture) SetReadDeadline(time.Time) error  { return nil }
func (capture) SetWriteDeadline(time.Time) error { return nil }

// Decoders of what they accept must write it back the same, byte for byte: there is one encoding.
func FuzzDecoders(f *testing.F) {
	h := Hello{Purpose: Register, Rank: 1, Size: 2}
	f.Add(h.Append(nil))
	id := Identity{PID: 1, Host: "h", Addrs: []string{"1.2.3.4:5", "[::1]:6"}}
	f.Add(id.Append(nil))
	a := Assignment{Parent: 3, Identity: id}
	f.Add(a.Append(nil))
	fl := Failure{Rank: 1, Kind: 2, Text: "text"}
	f.Add(fl.Append(nil))
	table := Table{First: 1, Data: [][]byte{{1}, {}, {2, 3}}}
	f.Add(bytes.Join(table.Parts(), nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := ParseHello(b); err == nil && !bytes.Equal(h.Append(nil), b) {
			t.Errorf("hello %x", b)
		}
		if id, err := ParseIdentity(b); err == nil && !bytes.Equal(id.Append(nil), b) {
			t.Errorf("identity %x", b)
		}
		if a, err := ParseAssignment(b); err == nil && !bytes.Equal(a.Append(nil), b) {
			t.Errorf("assignment %x", b)
		}
		if f, err := ParseFailure(b); err == nil && !bytes.Equal(f.Append(nil), b) {
			t.Errorf("failure %x", b)
		}
		for count := range 5 {
			if table, err := ParseTable(b, 1, count); err == nil && !bytes.Equal(bytes.Join(table.Parts(), nil), b) {
				t.Errorf("table %x", b)
			}
		}
	})
}

// FuzzFrames feeds a receiver; with the tag's key unknown, nothing but an error may come out.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x06\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09p0123456789abcdef"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := receiver(b, []byte("key nobody knows")).Receive(); err == nil {
			t.Errorf("accepted %x", b)
		}
	})
}

// FuzzHandshake feeds both sides of the handshake from a stranger.
func FuzzHandshake(f *testing.F) {
	h := Hello{Purpose: Register, Rank: 1, Size: 2}
	f.Add(append(h.Append(nil), appendHead(nil, msgProof, 0)...))
	f.Add(appendHead(nil, msgRefuse, uint16(OtherRun)))
	f.Add(append(appendHead(nil, msgChallenge, 0), make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		key := DeriveKey("nobody knows", "", 0)
		if p, _, err := ReadHello(stranger{in: bytes.NewReader(b)}); err == nil {
			if _, err := p.Admit(key); err == nil {
				t.Errorf("server let in %x", b)
			}
		}
		if _, err := Greet(stranger{in: bytes.NewReader(b)}, key, Hello{}); err == nil {
			t.Errorf("client trusts %x", b)
		}
	})
}

// stranger is a connection that says a fixed thing and hears nothing.
type stranger struct {
	capture
	in *bytes.Reader
}

func (s stranger) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s stranger) Write(b []byte) (int, error) { return len(b), nil }
