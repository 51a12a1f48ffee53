// Package rail decides what becomes of the writes of a connection over several rails (the sockets of an
// endpoint) when a rail fails. It is values in, values out: the sockets, the bytes and the clock are its
// caller's, and a model checker drives it through every order of events (model_test.go).
//
// A direction of a connection is a sequence of writes, numbered from 0. A write is one piece on the leading
// rail or several on any rails; rails get the pieces in the order of the writes. The receiver lands the lowest
// unfinished write only, and says how many have landed. Until it has, the sender keeps the write.
//
// When an end gives a rail up it closes it and says so on all others, with the number of writes that have
// landed (the notice "lost"). So this holds:
//
//  1. What comes after a peer's "lost" is not overtaken by anything from that rail: the peer reads it no more.
//  2. A sender that knows of a lost rail sends no piece before the peer's "lost" has named it as well. Then it
//     begins again at the first write that had not landed, after a mark ("again") on every rail that is left.
//  3. The receiver lands what was sent before the mark as long as the writes follow one another, and drops it
//     once it has read the mark on any rail; or once all rails are stuck with later writes, because then the
//     piece that it waits for was on a lost one.
//  4. A write that has landed is never landed again: its number is lower than the next one's.
package rail

import (
	"errors"
	"fmt"
	"math/bits"
)

// Max is how many rails a connection may have.
const Max = 16

// ErrProtocol is what a peer has done that says or sends what cannot be.
var ErrProtocol = errors.New("out of order")

// Set is a set of rails.
type Set uint16

// First is the set of the first n rails.
func First(n int) Set { return Set(1<<n - 1) }

// Has reports whether rail i is in s.
func (s Set) Has(i int) bool { return s>>i&1 != 0 }

// With is s and rail i.
func (s Set) With(i int) Set { return s | 1<<i }

// Without is s less rail i.
func (s Set) Without(i int) Set { return s &^ (1 << i) }

// Holds reports whether all of t are in s.
func (s Set) Holds(t Set) bool { return t&^s == 0 }

// Lead is the first rail in s, which must not be empty.
func (s Set) Lead() int { return bits.TrailingZeros16(uint16(s)) }

// Len is how many rails are in s.
func (s Set) Len() int { return bits.OnesCount16(uint16(s)) }

// Sender is the state of the sending direction. The caller has the numbers of the first write that has not
// landed and of the first that has not been given to rails, next.
type Sender struct {
	dead  Set    // given up here
	told  Set    // given up by the peer
	round uint32 // how often it has begun again
	first uint64 // where it began then
	top   uint64 // next, before that
}

// Lose notes that this end has given a rail up.
func (s *Sender) Lose(i int) { s.dead = s.dead.With(i) }

// Dead is the rails that this end has given up, as its "lost" says.
func (s *Sender) Dead() Set { return s.dead }

// Held reports whether no piece may be sent.
func (s *Sender) Held() bool { return s.dead != s.told }

// Round is how often the direction has begun again, and with which write at last, as its "again" says.
func (s *Sender) Round() (n uint32, first uint64) { return s.round, s.first }

// Told takes a peer's "lost": it has given up the rails dead after landed writes; done is how many it has told
// before. This end must have given them up as well. again: this end begins again, with the first write that is
// not known to have landed. A copy of an old one changes nothing.
func (s *Sender) Told(dead Set, landed, done, next uint64) (again bool, err error) {
	if s.told.Holds(dead) {
		return false, nil
	}
	if err := s.Landed(landed, next); err != nil {
		return false, err
	}
	if !dead.Holds(s.told) || !s.dead.Holds(dead) {
		return false, fmt.Errorf("%w: rails %#x are lost, after %#x", ErrProtocol, dead, s.told)
	}
	if s.told = dead; s.Held() {
		return false, nil
	}
	s.first, s.top = max(landed, done), max(s.top, next)
	s.round++
	return true, nil
}

// Landed checks a peer's number of landed writes.
func (s *Sender) Landed(n, next uint64) error {
	if n > max(s.top, next) {
		return fmt.Errorf("%w: %d writes landed of %d", ErrProtocol, n, max(s.top, next))
	}
	return nil
}

// Verdict is what becomes of a piece.
type Verdict uint8

// The verdicts.
const (
	Land Verdict = iota // it belongs to the write that is being landed
	Park                // it belongs to a later one: ask again when something has changed
	Drop                // it is not wanted: it comes again, or has landed before
	Bad                 // no peer sends it
)

// Receiver is the state of the receiving direction.
type Receiver struct {
	live   Set
	dead   Set
	parked Set         // rails whose next piece is parked, since the last write landed
	round  uint32      // the latest mark that was read
	want   uint32      // pieces before this mark are dropped
	rounds [Max]uint32 // by rail: its latest mark
}

// NewReceiver is a receiver with n rails.
func NewReceiver(n int) Receiver { return Receiver{live: First(n)} }

// Lose notes that this end has given a rail up.
func (r *Receiver) Lose(i int) {
	r.live, r.dead, r.parked = r.live.Without(i), r.dead.With(i), r.parked.Without(i)
}

// Judge tells what becomes of the next piece on rail i, of the write seq, when the write next is being landed.
func (r *Receiver) Judge(i int, seq, next uint64) Verdict {
	r.parked = r.parked.Without(i)
	switch {
	case r.rounds[i] < r.want:
		return Drop
	case seq == next:
		return Land
	case seq < next && r.rounds[i] == 0:
		return Bad
	case seq < next:
		return Drop
	}
	r.parked = r.parked.With(i)
	switch {
	case !r.parked.Holds(r.live):
		return Park
	case r.dead == 0:
		return Bad
	}
	r.want, r.parked = r.round+1, 0
	return Drop
}

// Finished notes that a write has landed.
func (r *Receiver) Finished() { r.parked = 0 }

// Again takes a mark on rail i: what follows it there begins with the write first, when next is being landed.
// fresh: it is the first of its round. The write that is being landed begins anew then, and what is half there
// on other rails is dropped, see Stale.
func (r *Receiver) Again(i int, round uint32, first, next uint64) (fresh bool, err error) {
	if round <= r.rounds[i] || round > uint32(r.dead.Len()) || first > next {
		return false, fmt.Errorf("%w: begins again with write %d for the %d. time, write %d is expected, %d rails are lost",
			ErrProtocol, first, round, next, r.dead.Len())
	}
	r.rounds[i] = round
	if round <= r.round {
		return false, nil
	}
	r.round, r.want, r.parked = round, round, 0
	return true, nil
}

// Stale reports whether pieces on rail i are from before the latest mark.
func (r *Receiver) Stale(i int) bool { return r.rounds[i] < r.want }
