package executor

import (
	"errors"
	"fmt"

	"github.com/gccl/gccl/internal/link"
)

// Length is the error of a transfer whose two ends disagree on its length.
type Length struct{ Peer, Got, Want int }

// Error says how long the two ends take the transfer to be.
func (e *Length) Error() string {
	return fmt.Sprintf("rank %d sends %d bytes or more where %d are expected", e.Peer, e.Got, e.Want)
}

// pairCall is a call's description where only the two ends of a transfer know its length.
func pairCall(c *link.Call, size, elem int) link.Call {
	n := uint64(size / elem)
	return link.Call{FP: c.FP ^ (n+1)*0x9e3779b97f4a7c15, A: c.A, B: c.B&^(1<<48-1) | n}
}

// expects is what messages of the lane's action carry, whether it has begun or not.
func (l *lane) expects(a *action) *link.Call {
	if p := l.job.Plan; p.Layout.Pairwise {
		_, size := a.length.at(l.window, p.Layout.Elem)
		l.call = pairCall(&l.job.Args.Call, size, p.Layout.Elem)
	}
	return &l.call
}

// rest is what of the action's transfer has not moved, whether it has begun or not.
func (l *lane) rest(a *action) int {
	if l.size >= 0 {
		return l.size - l.done
	}
	_, size := a.length.at(l.window, l.job.Plan.Layout.Elem)
	return size
}

// locate adds to damage of a message where in the transfer it is.
func (l *lane) locate(err error) error {
	var c *link.Corrupt
	if errors.As(err, &c) {
		return fmt.Errorf("%w, at byte %d of a transfer of %d", err, l.done, l.size)
	}
	return err
}
