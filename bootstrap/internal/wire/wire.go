// Package wire is the byte format of the bootstrap protocol: the handshake that opens a connection,
// the frames that follow it, and what the frames carry. docs/wire-bootstrap.md specifies all of it.
//
// The package holds no policy and starts no goroutine. Everything it decodes comes from a peer that may
// be a stranger: sizes are checked before memory is taken, and no input makes it panic.
package wire

import (
	"errors"
	"fmt"
)

// Version is the protocol version. A peer with another version is refused.
const Version = 1

// Magic opens every message of the handshake.
const Magic = "GCCL"

// ErrFormat marks input that does not follow the format.
var ErrFormat = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrFormat, fmt.Sprintf(format, args...))
}

// Message types of the handshake.
const (
	msgHello = iota + 1
	msgChallenge
	msgRefuse
	msgProof
)

// Purpose is what a connection is for.
type Purpose uint16

// The purposes.
const (
	Register Purpose = iota + 1 // a rank registers with the root
	Link                        // a rank links to its parent in the tree
	Store                       // a client uses a key-value store
	Recover                     // ranks of a group that has failed talk about who is left
	Join                        // a newcomer wants to become a rank of a group
	Pair                        // a rank meets another of its communicator, to make their links
	Look                        // a rank that waits for another's meeting looks whether it is there
)

// Code is why a connection is refused before it is authenticated.
type Code uint16

// The reasons.
const (
	OtherVersion Code = iota + 1
	OtherRun
	OtherEpoch
	OtherTarget // the rank that the caller wants is not here, or the purpose is not served
	Busy
	Left // the rank that the caller wants was here and has left
)

// String says the reason as a clause with the server as subject.
func (c Code) String() string {
	switch c {
	case OtherVersion:
		return "speaks another protocol version"
	case OtherRun:
		return "serves another job (run id differs)"
	case OtherEpoch:
		return "serves another epoch of this job"
	case OtherTarget:
		return "is not the rank that was wanted"
	case Busy:
		return "is busy with other handshakes"
	case Left:
		return "has left the group"
	}
	return fmt.Sprintf("refused with code %d", uint16(c))
}

// Refused is the error of a client that was refused before authentication. It proves nothing about
// the job: anybody can send it.
type Refused struct {
	Code  Code
	Epoch uint64 // the server's, with OtherEpoch
}

// Error says why.
func (r *Refused) Error() string {
	if r.Code == OtherEpoch {
		return fmt.Sprintf("the server there serves epoch %d of this job", r.Epoch)
	}
	return "the server there " + r.Code.String()
}

// ErrSecret is the error of the side that finds the other's proof wrong.
var ErrSecret = errors.New("the other side has another secret")
