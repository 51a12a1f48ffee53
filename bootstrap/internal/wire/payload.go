package wire

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// MaxAddrs bounds the addresses that a rank tells others.
const MaxAddrs = 64

// Identity says who a process is, for messages to people, and where it listens.
type Identity struct {
	PID   uint32
	Host  string   // at most 255 bytes
	Addrs []string // "ip:port", at most MaxAddrs of at most 255 bytes; none if it does not listen
}

// Append writes id behind b. Longer strings and lists are cut to their bounds.
func (id *Identity) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, id.PID)
	b = appendShort(b, id.Host)
	addrs := id.Addrs[:min(len(id.Addrs), MaxAddrs)]
	b = append(b, byte(len(addrs)))
	for _, a := range addrs {
		b = appendShort(b, a)
	}
	return b
}

// ParseIdentity reads what Append wrote, and nothing behind it.
func ParseIdentity(b []byte) (Identity, error) {
	r := reader{b: b}
	id := r.identity()
	return id, r.end()
}

// Assignment tells a rank its place in the tree.
type Assignment struct {
	Parent   uint32
	Identity // of the parent
}

// Append writes a behind b.
func (a *Assignment) Append(b []byte) []byte {
	return a.Identity.Append(binary.BigEndian.AppendUint32(b, a.Parent))
}

// ParseAssignment reads what Append wrote, and nothing behind it.
func ParseAssignment(b []byte) (Assignment, error) {
	r := reader{b: b}
	a := Assignment{Parent: r.u32()}
	a.Identity = r.identity()
	return a, r.end()
}

// NoRank stands for "no particular rank" in a Failure.
const NoRank = 1<<32 - 1

// MaxText bounds the text of a Failure in bytes.
const MaxText = 4096

// Failure is the payload of a Fault: why a group has failed.
type Failure struct {
	Rank uint32 // to blame, or NoRank
	Kind uint16 // which of bootstrap's kinds of error
	Text string // valid UTF-8, at most MaxText bytes
}

// Append writes f behind b.
func (f *Failure) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, f.Rank)
	b = binary.BigEndian.AppendUint16(b, f.Kind)
	text := strings.ToValidUTF8(f.Text, "?")
	for end := min(len(text), MaxText); ; end-- { // step back to a boundary between characters
		if end == len(text) || utf8.RuneStart(text[end]) {
			return append(b, text[:end]...)
		}
	}
}

// ParseFailure reads what Append wrote.
func ParseFailure(b []byte) (Failure, error) {
	r := reader{b: b}
	f := Failure{Rank: r.u32(), Kind: r.u16()}
	if r.bad || len(r.b) > MaxText || !utf8.Valid(r.b) {
		return Failure{}, malformed("fault of %d bytes", len(b))
	}
	f.Text = string(r.b)
	return f, nil
}

func appendShort(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

// reader takes fields off the front of b; bad is set once a field is not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return make([]byte, n)
	}
	head := r.b[:n]
	r.b = r.b[n:]
	return head
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }

func (r *reader) short() string { return string(r.take(int(r.u8()))) }

func (r *reader) identity() Identity {
	id := Identity{PID: r.u32(), Host: r.short()}
	n := int(r.u8())
	if n > MaxAddrs {
		r.bad = true
	}
	for i := 0; i < n && !r.bad; i++ {
		id.Addrs = append(id.Addrs, r.short())
	}
	return id
}

func (r *reader) end() error {
	if r.bad || len(r.b) != 0 {
		return malformed("fields and length disagree")
	}
	return nil
}
