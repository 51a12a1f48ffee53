package bootstrap

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/bootstrap/internal/meet"
)

// The kinds of failure, for errors.Is.
var (
	// ErrConfig: the configuration or environment is not usable; nothing was sent.
	ErrConfig = meet.ErrConfig

	// ErrTimeout: ranks or answers did not arrive before the deadline.
	ErrTimeout = meet.ErrTimeout

	// ErrPeerLost: a rank died, or the network to it broke.
	ErrPeerLost = errors.New("peer lost")

	// ErrPeerClosed: a rank closed its group while others still needed it.
	ErrPeerClosed = errors.New("peer closed its group")

	// ErrMismatch: ranks disagree about the size, a rank number or the operation.
	ErrMismatch = errors.New("ranks disagree")

	// ErrClosed: the group was closed on this rank.
	ErrClosed = errors.New("group is closed")

	// ErrTooLarge: an AllGather exceeds MaxPayload.
	ErrTooLarge = errors.New("payload too large")
)

// RankError is a failure for which one rank is to blame.
type RankError struct {
	// Rank is the rank to blame.
	Rank int

	// Err wraps one of the sentinels of this package and says what happened.
	Err error
}

// Error names the rank and what happened.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d: %v", e.Rank, e.Err) }

// Unwrap returns Err.
func (e *RankError) Unwrap() error { return e.Err }
