package bootstrap

import (
	"errors"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// faultKinds are the kinds of error that travel between ranks; the index is the code on the wire.
var faultKinds = [...]error{
	errFault, ErrTimeout, ErrPeerLost, ErrPeerClosed, ErrMismatch, ErrClosed, ErrTooLarge, ErrConfig,
}

// errFault is the kind of a failure that has none of the public ones.
var errFault = errors.New("group failed")

// remoteError is a failure that another rank reported.
type remoteError struct {
	kind error
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// failureOf prepares err for other ranks.
func failureOf(err error) wire.Failure {
	f := wire.Failure{Rank: wire.NoRank, Text: err.Error()}
	var blamed *RankError
	if errors.As(err, &blamed) {
		f.Rank, f.Text = uint32(blamed.Rank), blamed.Err.Error()
	}
	for code, kind := range faultKinds {
		if errors.Is(err, kind) {
			f.Kind = uint16(code)
			break
		}
	}
	return f
}

// errorOf is the inverse of failureOf.
func errorOf(f wire.Failure) error {
	kind := errFault
	if int(f.Kind) < len(faultKinds) {
		kind = faultKinds[f.Kind]
	}
	err := error(&remoteError{kind: kind, text: f.Text})
	if f.Rank != wire.NoRank {
		err = &RankError{Rank: int(f.Rank), Err: err}
	}
	return err
}
