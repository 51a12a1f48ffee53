package verbs

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// CompletionError is what the card reported about a write.
type CompletionError struct {
	Status uint32 // enum ibv_wc_status
	Vendor uint32 // the device's own code
	text   string
	kinds  []error
}

func (e *CompletionError) Error() string { return e.text }

// Unwrap returns rdma.ErrPeerLost for errors on the way or at the peer, and rdma.ErrAccess beside it
// if the peer's card refused the access: the kernel takes a dying process's regions away
// before its queue pairs, so that at this moment a wrong key and a killed peer look the same. It returns
// nothing for a write that is wrong in itself.
func (e *CompletionError) Unwrap() []error { return e.kinds }

// unreachable is what it means that a card gets no answer.
const unreachable = "the peer's process or host is gone, or the network is down"

// completionError explains a bad status of a write.
func (e *endpoint) completionError(s ibv.Status, vendor uint32) error {
	err := &CompletionError{Status: uint32(s), Vendor: vendor}
	var hint string
	switch s {
	case ibv.RemoteAccess, ibv.RemoteInvalid:
		err.kinds = []error{rdma.ErrAccess, rdma.ErrPeerLost}
		hint = ": the peer refused the key or the range, or its process is being killed"
	case ibv.RetryExceeded:
		err.kinds = []error{rdma.ErrPeerLost}
		hint = fmt.Sprintf(": no acknowledgement for %d times %v or more: %s%s",
			e.dev.opts.RetryCount+1, ackTimeout(e.dev.opts.Timeout), unreachable, e.dev.portHint())
	case ibv.RNRExceeded:
		err.kinds = []error{rdma.ErrPeerLost}
		hint = ": the peer had no receive posted: more writes with immediate unpolled than its RecvDepth"
	case ibv.LocalQPOp: // soft-RoCE's end of a connection whose port is down
		err.kinds = []error{rdma.ErrPeerLost}
		hint = e.dev.portHint()
	case ibv.RemoteOp, ibv.Flushed:
		err.kinds = []error{rdma.ErrPeerLost}
	}
	err.text = fmt.Sprintf("verbs: %v: %v (status %d, vendor %#x)%s", e, s, uint32(s), vendor, hint)
	for _, k := range err.kinds {
		err.text += ": " + k.Error()
	}
	return err
}

// ackTimeout is the time that a QP timeout code stands for.
func ackTimeout(code uint8) time.Duration {
	return (4096 * time.Nanosecond << code).Round(time.Millisecond)
}

// unavailable wraps ErrUnavailable.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("verbs: %w: %w", rdma.ErrUnavailable, fmt.Errorf(format, args...))
}

// explain adds to an error of making something what can be done about it. need is the memory that
// would be pinned, in bytes.
func explain(err error, need int) error {
	if !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) != nil {
		return err
	}
	return memlockError(err, lim.Cur, need)
}

func memlockError(err error, limit uint64, need int) error {
	if limit == unix.RLIM_INFINITY {
		return err
	}
	return unavailable("%w: memlock limit is %d KiB, this needs %d KiB more: raise it with ulimit -l, or LimitMEMLOCK in a systemd unit",
		err, limit>>10, (need+1023)>>10)
}
