package recorder

import "time"

// Len is how many calls a Ring keeps.
const Len = 256

// Sort is what many calls have in common. An entry points to it, so that a call costs few stores.
type Sort struct {
	// A and B are the description that the calls' messages carry (docs/wire.md), without the sequence number.
	A, B uint64
	// Bytes is the length of the larger buffer of this rank.
	Bytes int
	// Kind is the caller's number of what is called; it tells a receive from a send, which A does not.
	Kind uint8
	// Peer is the other rank of a single transfer.
	Peer int
}

// Entry is one call as the ring keeps it.
type Entry struct {
	*Sort
	// Seq is the sequence number.
	Seq uint32
	// Waited is when the run that the call belongs to first waited for long, in nanoseconds since 1970; 0: it
	// never did.
	Waited int64
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
	begun, done uint64 // the calls from done on are in progress, or have failed
	failed      bool
	entries     [Len]Entry
}

// Begin records a call, which has not waited. s must not change any more.
func (r *Ring) Begin(s *Sort, seq uint32) {
	e := &r.entries[r.begun%Len]
	e.Sort, e.Seq, e.Waited = s, seq, 0
	r.begun++
}

// End says that all calls begun have ended, well or not.
func (r *Ring) End(ok bool) {
	if ok {
		r.done = r.begun
	} else {
		r.failed = true
	}
}

// Waited notes when the calls in progress first waited.
func (r *Ring) Waited(t time.Time) {
	for i := max(r.done, r.begun-min(r.begun, Len)); i < r.begun; i++ {
		r.entries[i%Len].Waited = t.UnixNano()
	}
}

// Busy reports whether calls have begun and not ended.
func (r *Ring) Busy() bool { return r.done < r.begun && !r.failed }

// Each calls f for the calls that the ring still has, oldest first. n counts all calls from 1.
func (r *Ring) Each(f func(n uint64, e *Entry, s State)) {
	for i := r.begun - min(r.begun, Len); i < r.begun; i++ {
		s := Done
		switch {
		case i < r.done:
		case r.failed:
			s = Failed
		default:
			s = Running
		}
		f(i+1, &r.entries[i%Len], s)
	}
}
