package simulate

import (
	"fmt"
	"math"
	"time"
)

// Params describes the machine. Bandwidths are in bytes per second; 0 means without limit.
type Params struct {
	// Local is the way between ranks of one host, Net that between hosts.
	Local, Net Path
	// Hosts[r] is an index of the host of rank r. Nil: every rank has a host of its own.
	Hosts []int
	// HostBandwidth is what the network ports of one host move together, each way.
	HostBandwidth float64
	// SwitchBandwidth is what the network moves together.
	SwitchBandwidth float64
	// Reduce is how fast a rank combines: bytes of one operand. Copy is how fast it copies.
	Reduce, Copy float64
	// Overhead is the work of a rank for every segment of every step. All lanes of a rank share
	// one core.
	Overhead time.Duration
	// Segment is how many bytes a link moves at a time, Slots how many segments it holds that the
	// receiver has not taken yet. A window is as long as the schedule allows for so many slots.
	Segment, Slots int
}

// Path is the way between two ranks. A rank sends to and receives from one peer at a time at this
// bandwidth.
type Path struct {
	Latency   time.Duration
	Bandwidth float64
	// Put and Take are how fast the core of a rank copies a segment into the link and out of it, as it does
	// where ranks share memory. 0: it need not, an adapter does it. What a RecvReduce takes it combines
	// at Params.Reduce besides.
	Put, Take float64
}

// Default is a cluster of hosts with one rank and a 200 Gbit/s port each: an example, not a
// measurement of any machine.
func Default() Params {
	return Params{
		Local:    Path{Latency: 300 * time.Nanosecond, Bandwidth: 30e9},
		Net:      Path{Latency: 2 * time.Microsecond, Bandwidth: 24e9},
		Reduce:   40e9,
		Copy:     40e9,
		Overhead: 100 * time.Nanosecond,
		Segment:  256 << 10,
		Slots:    8,
	}
}

func (p *Params) check(size, bytes int) error {
	for _, b := range []float64{p.Local.Bandwidth, p.Net.Bandwidth, p.HostBandwidth, p.SwitchBandwidth, p.Reduce, p.Copy,
		p.Local.Put, p.Local.Take, p.Net.Put, p.Net.Take} {
		if b < 0 || math.IsNaN(b) {
			return fmt.Errorf("simulate: bandwidth %v: need 0 or more", b)
		}
	}
	switch {
	case p.Hosts != nil && len(p.Hosts) != size:
		return fmt.Errorf("simulate: %d hosts named for %d ranks", len(p.Hosts), size)
	case p.Segment < 1 || p.Slots < 1:
		return fmt.Errorf("simulate: %d slots of %d bytes: need at least one of each", p.Slots, p.Segment)
	case p.Overhead < 0 || p.Local.Latency < 0 || p.Net.Latency < 0:
		return fmt.Errorf("simulate: times must not be negative")
	case bytes < 0:
		return fmt.Errorf("simulate: %d bytes", bytes)
	}
	return nil
}

// host is the host of a rank.
func (p *Params) host(rank int) int {
	if p.Hosts == nil {
		return rank
	}
	return p.Hosts[rank]
}

// local tells whether two ranks share a host.
func (p *Params) local(a, b int) bool { return p.host(a) == p.host(b) }

// perByte is the seconds that a byte takes.
func perByte(bandwidth float64) float64 {
	if bandwidth == 0 {
		return 0
	}
	return 1 / bandwidth
}
