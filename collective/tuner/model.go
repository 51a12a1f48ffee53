package tuner

import (
	"time"

	"github.com/gccl/gccl/schedule"
)

// costs are the constants of the cost model for one kind of connection. Times are picoseconds.
type costs struct {
	latency  int64 // α: from a message's departure to its being seen
	message  int64 // work of a rank for each message that it sends or receives
	send     int64 // per byte: copy into a slot, or hand over to the kernel
	receive  int64 // per byte: copy out of a slot
	lent     int64 // per byte: read in place from memory that the peer has lent, where it can be
	reduce   int64 // per byte and operand, β of reading it included
	wire     int64 // per byte and direction on the port of a host, which its ranks share; 0: no port
	yielding int64 // α where ranks outnumber cores, for each rank of a core
}

// local is what memory costs, wherever the bytes come from.
const local = 35 // ps per byte of a copy: 28 GB/s

// model has the constants of each provider. They order algorithms where nobody has measured; they
// predict no machine. Where they come from:
//
//   - shm: two cores of one Zen 4 server: flag ping-pong 90–110 ns between Go processes, staging copies
//     25–28 GB/s into rings of 2 MiB, reading a peer's fresh buffer 38–47 GB/s, AVX-512 sum of float32
//     20–25 GB/s out of cache; with several ranks a core 1.6 µs a hop (sched_yield).
//   - loopback: goroutines of one process; the same memory, Gosched instead of PAUSE.
//   - tcp: polled socket on loopback 4–5 µs half round trip; 4.6 GB/s one way; between hosts a port of
//     10 Gbit/s.
//   - verbs: a 100 Gbit/s port and 2 µs, as public perftest outputs have them.
var model = map[string]costs{
	"shm":      {latency: 100_000, message: 30_000, send: 38, receive: 33, lent: 24, reduce: 45, yielding: 1_600_000},
	"loopback": {latency: 300_000, message: 50_000, send: 38, receive: 33, lent: 24, reduce: 45, yielding: 500_000},
	"tcp":      {latency: 5_000_000, message: 1_500_000, send: 200, receive: 220, lent: 220, reduce: 45, wire: 800, yielding: 8_000_000},
	"verbs":    {latency: 2_000_000, message: 200_000, send: 38, receive: 33, lent: 33, reduce: 45, wire: 80, yielding: 4_000_000},
}

// lendMin is the shortest transfer that the model takes for lent. The setting GCCL_LEND_MIN is a rank's
// own and must not enter.
const lendMin = 2 << 10

// crowding is the part of the ports' time that is lost where ranks change partners between hosts: some ports
// have two senders while others have none. Measured with 4 hosts of 2 ranks and 1 Gbit/s, 16 MiB of AllReduce
// in turns (mean of calls, best call; ms, 210 on the wire): halving and doubling 248, 228; two levels with a
// ring across 236, 223 (docs/performance.md).
const crowding = 16

// predict is the modelled time of an option, in picoseconds:
//
//	windows of one chunk each; busy = work of the busiest rank in a window; chain = the longest chain of
//	messages that wait for one another, with the work at its ends
//	time = max(busy, chain) + (windows − 1)·(busy + what waiting is left)
//
// A rank that shares its core does its neighbours' work, too. In the window after, a rank that needs
// data from all (everything but a rooted collective) waits for the chain's latency again, unless
// another channel has work meanwhile.
func (t *Tuner) predict(o *option, q Query) int64 {
	p := o.profile
	loc, net := model[t.cfg.Local], model[t.cfg.Net]
	windows, chunk := o.split(q.Bytes)
	ch := int64(o.Channels)
	lent := q.Registered && p.lazy && chunk >= lendMin
	segments := int64(1)
	if slot := int64(min(t.cfg.SlotBytes, segmentBytes)); !lent && chunk > slot {
		segments = (chunk + slot - 1) / slot
	}

	per := func(c costs, messages, sent, got, reduced int) (cpu int64) {
		cpu = ch * int64(messages) * segments * c.message
		if !lent || c.lent == c.receive {
			cpu += ch * int64(sent) * chunk * c.send
		}
		copies := int64(max(0, got-reduced)) * ch * chunk
		if lent {
			return cpu + copies*c.lent
		}
		return cpu + copies*c.receive
	}
	busy := per(loc, p.messages-p.netMessages, p.sent-p.netSent, p.received-p.netGot, p.reduced) +
		per(net, p.netMessages, p.netSent, p.netGot, max(0, p.reduced-(p.received-p.netGot)))
	busy += ch * chunk * (int64(p.reduced)*loc.reduce + int64(p.copied)*local)
	busy *= int64(t.load)

	latency := func(c costs) int64 {
		if t.load > 1 {
			return c.yielding * int64(t.load)
		}
		return c.latency
	}
	wait := int64(p.steps-p.netSteps)*latency(loc) + int64(p.netSteps)*latency(net)
	ports := ch * chunk * int64(max(p.netSent, p.netGot)) * net.wire * int64(t.perHost)
	if p.netTo > 1 && q.Collective == schedule.AllReduce && t.perHost > 1 { // nothing else was measured
		ports += ports / crowding
	}
	chain := wait + int64(p.steps)*chunk*(loc.send+loc.receive) + 2*loc.message
	if p.netSteps > 0 {
		chain += int64(p.netSteps) * chunk * net.wire
	}
	work := max(busy, ports)
	stall := int64(0)
	if !q.Collective.Rooted() {
		stall = wait / ch
	}
	return max(work+wait, chain) + (windows-1)*(work+stall)
}

// split is how many windows the option needs, and the bytes of a chunk in one of them.
func (o *option) split(bytes int) (windows, chunk int64) {
	parts := int64(max(1, o.profile.chunks) * o.Channels)
	windows = 1
	if o.Chunk > 0 {
		per := parts * int64(o.Chunk)
		windows = max(1, (int64(bytes)+per-1)/per)
	}
	return windows, (int64(bytes) + parts*windows - 1) / (parts * windows)
}

// duration rounds picoseconds to nanoseconds.
func duration(ps int64) time.Duration { return time.Duration((ps + 500) / 1000) }
