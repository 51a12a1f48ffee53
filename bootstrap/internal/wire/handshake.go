package wire

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net"
)

// Pending is a connection whose handshake is half done.
type Pending struct {
	nc  net.Conn
	br  *bufio.Reader
	key Key
	t   transcript
}

// Greet opens a handshake as the client: it says hello and verifies the server's proof. The nonce of
// hello is filled in. The caller has set a deadline on nc, and closes nc on error.
func Greet(nc net.Conn, key Key, hello Hello) (*Pending, error) {
	rand.Read(hello.Nonce[:])
	p := &Pending{nc: nc, br: bufio.NewReaderSize(nc, readBuffer), key: key}
	p.t.hello = hello.Append(make([]byte, 0, helloSize))
	if _, err := nc.Write(p.t.hello); err != nil {
		return nil, err
	}
	var b [challengeSize]byte
	if _, err := io.ReadFull(p.br, b[:headSize]); err != nil {
		return nil, err
	}
	kind, arg, err := parseHead(b[:headSize])
	if err != nil {
		return nil, err
	}
	switch {
	case kind == msgRefuse:
		return nil, readRefusal(p.br, Code(arg))
	case kind != msgChallenge || arg != 0:
		return nil, malformed("message type %d instead of challenge", kind)
	}
	if _, err := io.ReadFull(p.br, b[headSize:]); err != nil {
		return nil, err
	}
	p.t.challenge = b[:headSize+nonceSize]
	if !hmac.Equal(b[headSize+nonceSize:], p.t.mac(key, labelServer)) {
		return nil, ErrSecret
	}
	return p, nil
}

// Prove ends a handshake that Greet opened: it sends the client's proof.
func (p *Pending) Prove() (*Conn, error) {
	b := appendHead(make([]byte, 0, proofSize), msgProof, 0)
	if _, err := p.nc.Write(append(b, p.t.mac(p.key, labelClient)...)); err != nil {
		return nil, err
	}
	return p.session(labelClientToServer, labelServerToClient), nil
}

// Close closes a connection that is not wanted after all.
func (p *Pending) Close() error { return p.nc.Close() }

// ReadHello waits for a client's hello, as the server. The caller has set a deadline on nc.
func ReadHello(nc net.Conn) (*Pending, Hello, error) {
	p := &Pending{nc: nc, br: bufio.NewReaderSize(nc, readBuffer)}
	// The first bytes decide whether the rest is worth waiting for: a stranger is found out at once.
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(p.br, b[:headSize]); err != nil {
		return nil, Hello{}, err
	}
	if _, _, err := parseHead(b[:headSize]); err != nil {
		return nil, Hello{}, err
	}
	if _, err := io.ReadFull(p.br, b[headSize:]); err != nil {
		return nil, Hello{}, err
	}
	h, err := ParseHello(b)
	if err != nil {
		return nil, Hello{}, err
	}
	p.t.hello = b
	return p, h, nil
}

// Refuse tells a client why it is not served. Best effort; the caller closes nc.
func Refuse(nc net.Conn, why Refused) {
	b := appendHead(make([]byte, 0, headSize+epochSize), msgRefuse, uint16(why.Code))
	if why.Code == OtherEpoch {
		b = binary.BigEndian.AppendUint64(b, why.Epoch)
	}
	nc.Write(b)
}

// readRefusal reads what follows the head of a refusal.
func readRefusal(r io.Reader, code Code) error {
	why := &Refused{Code: code}
	if code == OtherEpoch {
		var b [epochSize]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return err
		}
		why.Epoch = binary.BigEndian.Uint64(b[:])
	}
	return why
}

// Admit ends the handshake as the server: it proves the server's knowledge of the key and verifies the
// client's.
func (p *Pending) Admit(key Key) (*Conn, error) {
	p.key = key
	p.t.challenge = appendHead(make([]byte, 0, challengeSize), msgChallenge, 0)
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	p.t.challenge = append(p.t.challenge, nonce[:]...)
	if _, err := p.nc.Write(append(p.t.challenge, p.t.mac(key, labelServer)...)); err != nil {
		return nil, err
	}
	var b [proofSize]byte
	if _, err := io.ReadFull(p.br, b[:]); err != nil {
		return nil, err
	}
	kind, arg, err := parseHead(b[:headSize])
	if err != nil {
		return nil, err
	}
	if kind != msgProof || arg != 0 {
		return nil, malformed("message type %d instead of proof", kind)
	}
	if !hmac.Equal(b[headSize:], p.t.mac(key, labelClient)) {
		return nil, ErrSecret
	}
	return p.session(labelServerToClient, labelClientToServer), nil
}

func (p *Pending) session(send, receive string) *Conn {
	return newConn(p.nc, p.br, p.t.mac(p.key, send), p.t.mac(p.key, receive))
}
