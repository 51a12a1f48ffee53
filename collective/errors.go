package collective

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/rdma"
)

// The kinds of errors, for errors.Is.
var (
	// ErrInvalid: an argument or a setting is wrong; nothing was sent, and a communicator that there is stays fine.
	ErrInvalid = errors.New("invalid argument or setting")
	// ErrNotBegun: the context of a call, or of an operation such as Alloc or Split, ended before its turn came; the error wraps the
	// context's, too. Nothing was sent (but by Shrink, which revokes the communicator first) and the communicator is as it was, but the
	// other ranks wait for this call: make it again, or Abort.
	ErrNotBegun = errors.New("call not begun")
	// ErrMismatch: ranks made different calls.
	ErrMismatch = errors.New("ranks disagree")
	// ErrPeerLost: a rank's process or host is gone, or it closed its communicator.
	ErrPeerLost = errors.New("peer lost")
	// ErrGaveUp: another rank gave the call up (its deadline passed, its caller cancelled or aborted).
	ErrGaveUp = errors.New("a rank gave up")
	// ErrRevoked: a rank ended all calls of the communicator, so that all can recover ([Comm.Shrink]).
	ErrRevoked = errors.New("communicator revoked")
	// ErrExcluded: the other ranks took this one for lost, and have gone on, or may have, without it.
	ErrExcluded = errors.New("excluded by the other ranks")
	// ErrClosed: the communicator was closed on this rank, whether or not it was broken before.
	ErrClosed = errors.New("communicator closed")
	// ErrUnavailable: no provider reaches a rank, or the wanted one cannot work here.
	ErrUnavailable = rdma.ErrUnavailable
	// ErrDevice: an accelerator that holds a tensor failed during a call.
	ErrDevice = errors.New("device failed")
	// ErrCorrupt: what came from a rank was damaged on the way, or is what no correct peer sends. With
	// Config.Checksum every byte of data is held against a sum.
	ErrCorrupt = errors.New("data corrupted")
	// ErrInternal: a peer sent what no correct peer sends, or an invariant broke.
	ErrInternal = errors.New("internal error")
)

// StepError is a call that broke its communicator.
type StepError struct {
	Kind error  // ErrMismatch, ErrPeerLost, ErrGaveUp, ErrRevoked, ErrDevice, ErrCorrupt, ErrInternal, context.DeadlineExceeded or context.Canceled
	Call string // "allreduce(float32[1024], sum)"
	Seq  uint64 // number of the call, from 1: among the collectives of its communicator, or the transfers from this rank to Peer or back
	Rank int    // this rank
	Peer int    // the rank to blame; −1: nobody in particular
	// Where the call stood when it failed: the first lane that waited, its step and the number of
	// its steps; Step is −1 where nothing waited.
	Lane, Step, Steps int
	// Doing is that step in words: "recv-reduce from 2".
	Doing string
	Err   error // the cause
}

// Error says who waits for whom: "allreduce(float32[8], sum) #12 rank 3 lane 0 step 5/14
// (recv-reduce from 2): peer lost: …".
func (e *StepError) Error() string {
	where := ""
	if e.Step >= 0 {
		where = fmt.Sprintf(" lane %d step %d/%d (%s)", e.Lane, e.Step, e.Steps, e.Doing)
	}
	return fmt.Sprintf("%s #%d rank %d%s: %v: %v", e.Call, e.Seq, e.Rank, where, e.Kind, e.Err)
}

// Unwrap returns the kind and the cause.
func (e *StepError) Unwrap() []error { return []error{e.Kind, e.Err} }

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}
