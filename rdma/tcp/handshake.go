package tcp

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
)

// A handshake is four messages of fixed length. The dialler knows both endpoint addresses; the
// acceptor may not have been told the dialler's yet.
//
//	dialler                          acceptor
//	hello: names, nonce, socket  ─▶
//	                             ◀─  challenge: nonce, proof by the acceptor's token
//	proof by both tokens         ─▶
//	       choice, by the end with the lower name, to the other
//
// All proofs are HMACs over the whole transcript and, under TLS, over the session's exporter.

const (
	helloLen     = 64
	challengeLen = 48
	proofLen     = 64
	choiceLen    = 8
)

var (
	helloMagic = []byte("gcclTCP\x01")
	choiceText = []byte("gcclpair")
)

// errStranger is what everybody is who cannot prove that he knows an endpoint's address.
var errStranger = errors.New("stranger")

// hello is the dialler's first message.
type hello struct {
	to, from name
	nonce    [16]byte
	socket   uint8 // which of the endpoint's sockets this is
	sockets  uint8 // how many there will be
}

func (h *hello) encode() []byte {
	b := make([]byte, helloLen)
	copy(b, helloMagic)
	copy(b[8:], h.to[:])
	copy(b[24:], h.from[:])
	copy(b[40:], h.nonce[:])
	b[56], b[57] = h.socket, h.sockets
	return b
}

func parseHello(b []byte) (*hello, error) {
	h := &hello{to: name(b[8:24]), from: name(b[24:40]), nonce: [16]byte(b[40:56]), socket: b[56], sockets: b[57]}
	switch {
	case !bytes.Equal(b[:8], helloMagic):
		return nil, fmt.Errorf("%w: began with % x", errStranger, b[:8])
	case h.sockets < 1 || h.sockets > maxSockets || h.socket >= h.sockets || !bytes.Equal(b[58:64], make([]byte, 6)):
		return nil, fmt.Errorf("%w: malformed hello: socket %d of %d", errStranger, h.socket, h.sockets)
	}
	return h, nil
}

// keys makes the proofs of one device.
type keys struct{ secret []byte }

// of derives the key that an endpoint's token gives.
func (k keys) of(t token) []byte {
	m := hmac.New(sha256.New, k.secret)
	m.Write([]byte("gccl tcp endpoint"))
	m.Write(t[:])
	return m.Sum(nil)
}

// prove returns the proof of knowing t, by one of the two parties ("accept", "dial", "own").
func (k keys) prove(t token, party string, transcript []byte) []byte {
	m := hmac.New(sha256.New, k.of(t))
	m.Write([]byte(party))
	m.Write(transcript)
	return m.Sum(nil)
}

// greeted is a connection whose other end knows this endpoint's token.
type greeted struct {
	hello      *hello
	transcript []byte // what the proofs cover
	own        []byte // proof by the dialler's own token, to be checked when that is known
}

// greet is the acceptor's part up to the choice. find returns the token of the endpoint that the
// hello names.
func greet(c net.Conn, exporter []byte, k keys, find func(*hello) (token, error)) (*greeted, error) {
	first := make([]byte, helloLen)
	if _, err := io.ReadFull(c, first); err != nil {
		return nil, fmt.Errorf("%w: no hello: %w", errStranger, err)
	}
	h, err := parseHello(first)
	if err != nil {
		return nil, err
	}
	t, err := find(h)
	if err != nil {
		return nil, err
	}
	challenge := make([]byte, 16, challengeLen)
	_, _ = rand.Read(challenge) // never fails, see crypto/rand
	transcript := append(bytes.Clone(exporter), first...)
	transcript = append(transcript, challenge...)
	challenge = append(challenge, k.prove(t, "accept", transcript)...)
	if _, err := c.Write(challenge); err != nil {
		return nil, err
	}
	proof := make([]byte, proofLen)
	if _, err := io.ReadFull(c, proof); err != nil {
		return nil, fmt.Errorf("no proof: %w", err) // a dialler that has chosen another connection ends like this
	}
	if !hmac.Equal(proof[:32], k.prove(t, "dial", transcript)) {
		return nil, fmt.Errorf("%w: wrong proof", errStranger)
	}
	return &greeted{hello: h, transcript: transcript, own: proof[32:]}, nil
}

// ownProved tells whether the dialler knew the token of the endpoint that it claims to be.
func (g *greeted) ownProved(k keys, t token) bool {
	return hmac.Equal(g.own, k.prove(t, "own", g.transcript))
}

// introduce is the dialler's part up to its proof, which it returns to be sent when it wants this
// connection.
func introduce(c net.Conn, exporter []byte, k keys, h *hello, theirs, mine token) ([]byte, error) {
	_, _ = rand.Read(h.nonce[:]) // never fails, see crypto/rand
	first := h.encode()
	if _, err := c.Write(first); err != nil {
		return nil, err
	}
	challenge := make([]byte, challengeLen)
	if _, err := io.ReadFull(c, challenge); err != nil {
		return nil, fmt.Errorf("no answer to the hello: %w", err)
	}
	transcript := append(bytes.Clone(exporter), first...)
	transcript = append(transcript, challenge[:16]...)
	if !hmac.Equal(challenge[16:], k.prove(theirs, "accept", transcript)) {
		return nil, errors.New("the answer is not the peer's (another process there, or another secret)")
	}
	return append(k.prove(theirs, "dial", transcript), k.prove(mine, "own", transcript)...), nil
}

// readChoice waits for the leading end to choose this connection.
func readChoice(c net.Conn) error {
	b := make([]byte, choiceLen)
	if _, err := io.ReadFull(c, b); err != nil {
		return fmt.Errorf("not chosen: %w", err)
	}
	if !bytes.Equal(b, choiceText) {
		return errors.New("malformed choice")
	}
	return nil
}
