// Package faulty wraps any device and makes it fail by a plan, so that those above can be tested
// against what networks do.
//
// A plan's decisions depend on its seed, the number of the endpoint and the number of the post, and on
// nothing else: the same plan hits the same writes again.
//
// Faults come in two kinds. Legal ones stay inside the contract of package rdma, and users must cope
// with any number of them: Delay, ShortPosts, HiddenPolls, and the loss of a connection or a
// device: Break, Die, Stall. The others are damage that a reliable connection promises not to do, and
// that broken hardware, firmware or software does: Drop, Truncate, Corrupt. Users need not survive
// it; tests use it to see that it is noticed. Writes are never reordered or duplicated: reliable
// transports number their packets, so what reaches memory late or twice there does so below any
// completion, and has no effect that could be seen here.
//
// Loads and stores through rdma.LoadStore are not faulted, except by Break and Die. HideLoadStore has
// users write instead.
package faulty

import (
	"fmt"
	"time"
)

// Fault is what happens to a write.
type Fault uint8

// The faults.
const (
	None Fault = iota
	// Delay holds this write, and those after it, back for Plan.Delay. Order is kept.
	Delay
	// Drop loses the write, immediate included. Its completion claims success.
	Drop
	// Truncate writes only the first half of the bytes. The immediate arrives.
	Truncate
	// Corrupt flips one bit of what is written.
	Corrupt
	// Stall holds this write and all after it back for ever, without an error at either end: a
	// network that is gone and that nobody has noticed yet. The queue fills up.
	Stall
	// Break ends the connection instead of writing: both ends lose their peer.
	Break
	// Die ends the device instead of writing, as the death of its process would: its peers lose it,
	// and its user finds everything closed.
	Die
	faults
)

func (f Fault) String() string {
	names := [...]string{"none", "delay", "drop", "truncate", "corrupt", "stall", "break", "die"}
	if f >= faults {
		return fmt.Sprintf("Fault(%d)", uint8(f))
	}
	return names[f]
}

// Event is a fault at one write.
type Event struct {
	Endpoint int    // number of the endpoint on its device, from 1 in the order of creation; 0: each
	Post     uint64 // number of the write on its endpoint, from 0
	Fault    Fault
}

func (e Event) String() string {
	return fmt.Sprintf("%v at write %d of endpoint %d", e.Fault, e.Post, e.Endpoint)
}

// Plan says what goes wrong. The zero Plan lets everything pass unchanged. It must not be changed
// while a device uses it.
type Plan struct {
	// Seed varies the decisions made by the chances below.
	Seed uint64
	// At lists faults at given writes; the first that matches wins, and before Rates.
	At []Event
	// Rates gives for each fault the chance that it hits a write, from 0 to 1. Their sum is at most 1.
	Rates map[Fault]float64
	// Delay is how long Delay holds writes back. 0 means one millisecond.
	Delay time.Duration
	// ShortPosts is the chance that Post stops before a write as if the queue were full, while a
	// signaled write is under way whose completion will say to go on. The next call takes it.
	ShortPosts float64
	// HiddenPolls is the chance that Poll finds nothing although something is there. Two calls in a
	// row are never hidden.
	HiddenPolls float64
	// HideLoadStore has the endpoints not implement rdma.LoadStore.
	HideLoadStore bool
}

// The streams of decisions that do not depend on each other.
const (
	streamFault uint64 = iota + 1
	streamShort
	streamPoll
	streamBit
)

// FaultAt returns what happens to write post of endpoint.
func (p *Plan) FaultAt(endpoint int, post uint64) Fault {
	for _, e := range p.At {
		if e.Post == post && (e.Endpoint == 0 || e.Endpoint == endpoint) {
			return e.Fault
		}
	}
	if len(p.Rates) == 0 {
		return None
	}
	x := p.chance(streamFault, endpoint, post)
	for f := None + 1; f < faults; f++ {
		if x -= p.Rates[f]; x < 0 {
			return f
		}
	}
	return None
}

// chance returns a number in [0, 1) for a decision.
func (p *Plan) chance(stream uint64, number int, k uint64) float64 {
	return float64(p.hash(stream, number, k)>>11) / (1 << 53)
}

// hash mixes its arguments with the seed (the finalizer of splitmix64, once for each).
func (p *Plan) hash(stream uint64, number int, k uint64) uint64 {
	z := p.Seed
	for _, v := range [...]uint64{stream, uint64(number), k} {
		z += v + 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
	}
	return z
}

func (p *Plan) delay() time.Duration {
	if p.Delay > 0 {
		return p.Delay
	}
	return time.Millisecond
}
