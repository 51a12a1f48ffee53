package meet

import (
	"errors"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// countOther notes whether another server than the wanted one has answered at an address, and ends the
// call if that is so at all places for long enough, or if a server says that the caller's epoch is over. The
// caller holds the lock.
func (a *attempts) countOther(v *verdict) {
	var refused *wire.Refused
	switch {
	case errors.As(v.err, &refused) && refused.Code != wire.Busy && refused.Code != wire.Left, errors.Is(v.err, wire.ErrFormat):
		if v.others.IsZero() {
			v.others = time.Now()
		}
	default:
		v.others = time.Time{}
	}
	if !a.Decided || v.others.IsZero() {
		return
	}
	// A name may lead to addresses, of which the server uses one: another that answers speaks for all.
	answered := make(map[place]bool)
	for _, other := range a.seen {
		since := !other.others.IsZero() && time.Since(other.others) >= otherPatience || a.over(other)
		answered[other.place] = answered[other.place] || since
	}
	for _, t := range a.Targets {
		for port := t.First; port <= t.Last; port++ {
			if !answered[place{t.Host, port}] {
				return
			}
		}
	}
	select {
	case a.others <- struct{}{}:
	default:
	}
}

// over says whether a server has said twice that it serves a later epoch of the caller's job.
func (a *attempts) over(v *verdict) bool {
	var refused *wire.Refused
	return errors.As(v.err, &refused) && refused.Code == wire.OtherEpoch && refused.Epoch > a.Epoch && v.tries > 1
}
