package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// Key authenticates the processes of one epoch of one job to each other.
type Key [sha256.Size]byte

// DeriveKey returns the key of an epoch of a job. An empty secret is replaced by the run id, which
// protects against accidents only.
func DeriveKey(secret, runID string, epoch uint64) Key {
	material := "s" + secret
	if secret == "" {
		material = "r" + runID
	}
	return Key(sum([]byte(material), []byte("gccl bootstrap 1\x00"),
		[]byte(runID), []byte{0}, binary.BigEndian.AppendUint64(nil, epoch)))
}

// sum returns the HMAC-SHA256 of the concatenation of parts.
func sum(key []byte, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write(p)
	}
	return m.Sum(nil)
}

// transcript is what both sides have seen of a handshake: the hello and the challenge without its MAC.
type transcript struct{ hello, challenge []byte }

// mac returns the HMAC of the transcript for one use; the label keeps the uses apart, so that no
// message can be reflected or serve as another.
func (t transcript) mac(key Key, label string) []byte {
	return sum(key[:], []byte(label), []byte{0}, t.hello, t.challenge)
}

const (
	labelServer         = "gccl server proof"
	labelClient         = "gccl client proof"
	labelClientToServer = "gccl frames to server"
	labelServerToClient = "gccl frames to client"
)
