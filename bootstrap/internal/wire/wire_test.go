package wire

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func hello() Hello {
	return Hello{Purpose: Register, Run: DigestRun("run"), Epoch: 7, Rank: 3, Size: 8, Target: 0}
}

// shake runs a handshake between two keys and returns both ends and both errors.
func shake(t *testing.T, clientKey, serverKey Key) (client, server *Conn, clientErr, serverErr error) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		var p *Pending
		if p, clientErr = Greet(a, clientKey, hello()); clientErr == nil {
			client, clientErr = p.Prove()
		}
		if clientErr != nil {
			a.Close()
		}
	}()
	p, h, err := ReadHello(b)
	require.NoError(t, err)
	want := hello()
	want.Nonce = h.Nonce
	assert.Equal(t, want, h)
	if server, serverErr = p.Admit(serverKey); serverErr != nil {
		b.Close()
	}
	<-done
	return client, server, clientErr, serverErr
}

func pair(t *testing.T) (client, server *Conn) {
	key := DeriveKey("secret", "run", 7)
	client, server, err1, err2 := shake(t, key, key)
	require.NoError(t, err1)
	require.NoError(t, err2)
	return client, server
}

func TestHandshakeAndFrames(t *testing.T) {
	client, server := pair(t)
	client.MaxData, server.MaxData = 3<<20, 3<<20
	for _, ends := range [][2]*Conn{{client, server}, {server, client}} {
		for i, size := range []int{0, 1, 4095, 4096, 4097, 1 << 20, 1<<20 + 1, 3 << 20} {
			payload := bytes.Repeat([]byte{byte(i + 1)}, size)
			errs := make(chan error, 1)
			go func() {
				errs <- ends[0].Send(Frame{Type: Up, Op: AllGather, Seq: uint64(i), Payload: payload[:size/2]}, payload[size/2:])
			}()
			f, err := ends[1].Receive()
			require.NoError(t, err)
			require.NoError(t, <-errs)
			assert.Equal(t, Up, f.Type)
			assert.Equal(t, AllGather, f.Op)
			assert.Equal(t, uint64(i), f.Seq)
			assert.True(t, bytes.Equal(payload, f.Payload))
		}
	}
}

// A process that stood still while its deadline passed still says what there is room for, and no more than that.
func TestSendAfterTheDeadline(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer near.Close()
	far, err := l.Accept()
	require.NoError(t, err)
	defer far.Close()
	key := []byte("key")
	from, to := newConn(near, nil, key, key), newConn(far, bufio.NewReader(far), key, key)
	require.NoError(t, near.SetWriteDeadline(time.Unix(1, 0)))
	text := bytes.Repeat([]byte("why"), maxControl/3)
	require.NoError(t, from.Send(Frame{Type: Fault, Payload: text}))
	f, err := to.Receive()
	require.NoError(t, err)
	require.Equal(t, text, f.Payload)
	for err == nil { // until the sockets are full
		err = from.Send(Frame{Type: Message, Payload: text})
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestSecretsDiffer(t *testing.T) {
	_, _, clientErr, serverErr := shake(t, DeriveKey("a", "run", 7), DeriveKey("b", "run", 7))
	assert.ErrorIs(t, clientErr, ErrSecret)
	assert.Error(t, serverErr)
}

func TestKeysDependOnEverything(t *testing.T) {
	keys := make(map[Key]bool)
	for _, secret := range []string{"", "a", "run"} {
		for _, run := range []string{"", "a", "run"} {
			for epoch := range uint64(2) {
				keys[DeriveKey(secret, run, epoch)] = true
			}
		}
	}
	assert.Len(t, keys, 18)
}

// A client that talks to itself, or repeats what it saw, proves nothing.
func TestProofsCannotBeReflected(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	key := DeriveKey("secret", "run", 7)
	errs := make(chan error, 1)
	go func() {
		p, _, err := ReadHello(b)
		if err == nil {
			_, err = p.Admit(key)
		}
		errs <- err
	}()
	h := hello()
	_, err := a.Write(h.Append(nil))
	require.NoError(t, err)
	challenge := make([]byte, challengeSize)
	_, err = io.ReadFull(a, challenge)
	require.NoError(t, err)
	proof := append(appendHead(nil, msgProof, 0), challenge[challengeSize-32:]...)
	_, err = a.Write(proof)
	require.NoError(t, err)
	assert.ErrorIs(t, <-errs, ErrSecret)
}

// Whatever one bit of a frame is flipped, the frame is refused.
func TestFramesAreAuthentic(t *testing.T) {
	var sent bytes.Buffer
	key := DeriveKey("secret", "run", 7)
	tr := transcript{[]byte("h"), []byte("c")}
	sender := newConn(capture{&sent}, nil, tr.mac(key, "x"), nil)
	require.NoError(t, sender.Send(Frame{Type: Up, Seq: 1, Payload: []byte("payload")}))
	whole := sent.Bytes()
	for bit := range 8 * len(whole) {
		bad := bytes.Clone(whole)
		bad[bit/8] ^= 1 << (bit % 8)
		_, err := receiver(bad, tr.mac(key, "x")).Receive()
		require.Error(t, err, "bit %d", bit)
	}
	// Nor can it be repeated.
	r := receiver(append(bytes.Clone(whole), whole...), tr.mac(key, "x"))
	_, err := r.Receive()
	require.NoError(t, err)
	_, err = r.Receive()
	require.ErrorIs(t, err, ErrFormat)
}

func TestLengthsAreLimitedBeforeMemoryIsTaken(t *testing.T) {
	for _, kind := range []Type{Introduce, Fault, Bye, Up, 99} {
		head := []byte{0xff, 0xff, 0xff, 0xff, byte(kind), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		_, err := receiver(head, nil).Receive()
		assert.ErrorIs(t, err, ErrFormat)
	}
	big := receiver([]byte{0x40, 0, 0, 0, byte(Up), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3}, nil)
	big.MaxData = 1 << 30
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			readGrowing(bytes.NewReader([]byte{1, 2, 3}), 1<<30)
		}
	}).AllocedBytesPerOp()
	assert.Less(t, allocated, int64(2<<20), "a lie about the length costs no memory")
	_, err := big.Receive()
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// The layout is the contract of docs/wire-bootstrap.md.
func TestLayout(t *testing.T) {
	h := Hello{Purpose: Link, Epoch: 0x0102030405060708, Rank: 3, Size: 8, Target: 5}
	for i := range h.Run {
		h.Run[i] = 0xaa
	}
	for i := range h.Nonce {
		h.Nonce[i] = 0xbb
	}
	want := "GCCL" + "\x01\x01\x00\x02" + strings.Repeat("\xaa", 16) + "\x01\x02\x03\x04\x05\x06\x07\x08" +
		"\x00\x00\x00\x03" + "\x00\x00\x00\x08" + "\x00\x00\x00\x05" + "\x00\x00\x00\x00" + strings.Repeat("\xbb", 32)
	assert.Equal(t, []byte(want), h.Append(nil))

	id := Identity{PID: 258, Host: "ab", Addrs: []string{"1.2.3.4:5"}}
	assert.Equal(t, []byte("\x00\x00\x01\x02\x02ab\x01\x091.2.3.4:5"), id.Append(nil))
	a := Assignment{Parent: 9, Identity: id}
	assert.Equal(t, []byte("\x00\x00\x00\x09\x00\x00\x01\x02\x02ab\x01\x091.2.3.4:5"), a.Append(nil))
	f := Failure{Rank: NoRank, Kind: 2, Text: "é"}
	assert.Equal(t, []byte("\xff\xff\xff\xff\x00\x02\xc3\xa9"), f.Append(nil))
	table := Table{First: 1, Data: [][]byte{[]byte("xy"), nil, []byte("z")}}
	assert.Equal(t, []byte("\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01xyz"),
		bytes.Join(table.Parts(), nil))

	var sent bytes.Buffer
	sender := newConn(capture{&sent}, nil, []byte("key"), nil)
	require.NoError(t, sender.Send(Frame{Type: Down, Op: Barrier, Seq: 9, Payload: []byte("p")}))
	assert.Equal(t, []byte("\x00\x00\x00\x01\x06\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x09p"), sent.Bytes()[:17])
	assert.Equal(t, sum([]byte("key"), make([]byte, 8), sent.Bytes()[:17])[:16], sent.Bytes()[17:])
}

func TestPayloadsSurvive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := Identity{
			PID:   rapid.Uint32().Draw(t, "pid"),
			Host:  rapid.StringN(0, 60, 255).Draw(t, "host"),
			Addrs: rapid.SliceOfN(rapid.StringN(0, 60, 255), 0, MaxAddrs).Draw(t, "addrs"),
		}
		if len(id.Addrs) == 0 {
			id.Addrs = nil
		}
		got, err := ParseIdentity(id.Append(nil))
		if err != nil || !cmp.Equal(id, got) {
			t.Fatalf("%v: %s", err, cmp.Diff(id, got))
		}
		f := Failure{Rank: rapid.Uint32().Draw(t, "rank"), Text: rapid.StringN(0, 3*MaxText, -1).Draw(t, "text")}
		back, err := ParseFailure(f.Append(nil))
		if err != nil || !strings.HasPrefix(f.Text, back.Text) || len(f.Text) <= MaxText && back.Text != f.Text {
			t.Fatalf("%v: %q became %q", err, f.Text, back.Text)
		}
		table := Table{First: 4, Data: rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 9), 0, 9).Draw(t, "data")}
		again, err := ParseTable(bytes.Join(table.Parts(), nil), 4, len(table.Data))
		if err != nil || !cmp.Equal(table, again) {
			t.Fatalf("%v: %s", err, cmp.Diff(table, again))
		}
	})
}

// capture is a connection that keeps what is written.
type capture struct{ *bytes.Buffer }

func receiver(input, key []byte) *Conn {
	c := newConn(nil, nil, nil, key)
	c.br = newReader(bytes.NewReader(input))
	return c
}
