package recorder

import "time"

// Len is how many calls a Ring keeps.
const Len = 256

// Entry is one call as the ring keeps it.
type Entry struct {
	// A and B are the description that the call's messages carry (docs/wire.md).
	A, B uint64
	// Bytes is the length of the larger buffer of this rank.
	Bytes int
	// Kind is the caller's number of what is called; it tells a receive from a send, which A does not.
	Kind uint8
	// Peer is the other rank of a single transfer.
	Peer int32
	// Waited is when the run that the call belongs to first waited for long; zero: it never did.
	Waited time.Time
}

// State is how far a call is.
type State string

// The states of a call.
const (
	Running State = "running"
	Done    State = "done"
	Failed  State = "failed"
)

// Ring holds the last Len calls. It belongs to one goroutine at a time. Calls begin one by one and
// end together, as those of a group do; a run that fails is the last.
type Ring struct {
	begun, done, start uint64
	failed             bool
	entries            [Len]Entry
}

// Begin records a call and returns its entry to be filled in; all its fields are as an earlier call
// left them.
func (r *Ring) Begin() *Entry {
	e := &r.entries[r.begun%Len]
	r.begun++
	return e
}

// End says that all calls begun have ended, well or not, and when they first waited.
func (r *Ring) End(ok bool, waited time.Time) {
	if !waited.IsZero() {
		r.Waited(waited)
	}
	if r.start = r.begun; ok {
		r.done = r.begun
	} else {
		r.failed = true
	}
}

// Waited notes when the calls in progress first waited.
func (r *Ring) Waited(t time.Time) {
	for i := max(r.start, r.begun-min(r.begun, Len)); i < r.begun; i++ {
		r.entries[i%Len].Waited = t
	}
}

// Begun is the number of calls ever recorded.
func (r *Ring) Begun() uint64 { return r.begun }

// Busy reports whether calls have begun and not ended.
func (r *Ring) Busy() bool { return r.start < r.begun }

// Each calls f for the calls that the ring still has, oldest first. n counts all calls from 1.
func (r *Ring) Each(f func(n uint64, e *Entry, s State)) {
	for i := r.begun - min(r.begun, Len); i < r.begun; i++ {
		s := Done
		switch {
		case i >= r.start:
			s = Running
		case i >= r.done:
			s = Failed
		}
		f(i+1, &r.entries[i%Len], s)
	}
}
