package tuner

import (
	"math"

	"github.com/gccl/gccl/schedule"
)

// row is a line of the table of defaults: what measurements found best in a situation.
type row struct {
	provider   string // of all pairs of ranks
	from, to   int    // ranks, both included
	collective schedule.Collective
	registered bool
	below      int // bytes; the first row that fits is taken
	algorithm  string
	channels   int // at most; less where the links have fewer lanes
	chunk      int // bytes; 0: one slot
}

const (
	kib   = 1 << 10
	mib   = 1 << 20
	large = math.MaxInt
)

// defaults is the table. Where it says nothing (verbs, several hosts, more ranks), the model decides.
//
// Provenance: float32 between processes of one host, two Zen 4 cores, each rank bound to one where there are
// enough, medians of interleaved runs. AllReduce through slots: at 2 ranks one-shot moves as many bytes as
// two-shot with half the waits, and is ahead or level up to 32 MiB, but on an Intel Xeon, whose cores have 2 MiB of second-level
// cache, from 2 to 8 MiB (2, 3, 4 and 8 MiB: 443, 697, 885 and 1835 µs for 359, 620, 691 and 1567 by two-shot; 1.5 and 32 MiB 287 and
// 7215 for 280 and 8486, 16 MiB in one tensor 2661 for 3258; medians of 5 rounds, 32 MiB 3); at 4 ranks it is up to 32 KiB, at 8 up to
// 8 KiB, because each rank reads all of everybody's data. With registered buffers two-shot reads the peers'
// memory in place and wins from 2 KiB, with fewer and larger windows. No ring beat the direct algorithms on
// shared memory. A second channel costs a wait more than it saves, but for 2 ranks and tens of MiB.
// What goes to several ranks is copied once, into slots of 256 KiB, and chunks are as long: with 128 KiB, 16 MiB took 2.7 ms for
// 2.5 (AllGather), 3.1 for 2.8 (Broadcast) and 6.0 for 5.4 (AllReduce) at 4 ranks, with a ring's slot 5.0, 3.3 and 6.4.
// AllToAll: sending all before the first is received takes fewest turns of ranks that share cores (4 KiB, direct and
// pairwise: 10.8 and 13.0 µs at 4 ranks, 43 and 74 at 8; 1 MiB 147 and 156 at 4, but 500 and 449 at 8), and one lane
// between two (8 B: 0.23 µs, pairwise 0.45, Bruck's rounds 0.32); pairwise, with more ranks than cores blocks of 128 KiB save
// turns (1 MiB: 0.50 ms for 0.75 at 8 ranks).
//
// Over tcp within a host, on the same machine: two ranks exchange all of it up to 512 KiB, as two hops cost more
// than adding twice (512 KiB: 143 for 152 by two-shot; 768 KiB, 1, 1.5 and 2 MiB: 225, 305, 434 and 577 for 215, 268, 416 and 553; medians of
// 6 and 12 rounds, µs); a second channel only costs messages (128 and 256 KiB: 58 and 75 for 99 and 85, medians of 8 and 5 rounds). A Reduce of theirs is one message while that is short (8 B: 7.9 for 13.7 in two
// pieces), and AllToAll gains nothing from a second channel (16 MiB: 4.7 ms for 8.3).
// From 3 MiB its blocks go whole, straight from one tensor to the other (2 ranks, 16 and 64 MiB: 3.2 and 12.0 ms for 4.0 and 20 in pieces of a slot; 4 ranks
// 10.8 and 42 for 17 and 69; 8 ranks, 16 MiB, 34 for 37; medians of 3 rounds). Sending all first is better up to 512 KiB (2 ranks, 64 KiB: 19 µs,
// pairwise 23; 4 ranks, 64 and 256 KiB: 99 and 225, pairwise 126 and 229; 8 ranks, 256 KiB: 696 and 767; 1 MiB: 173, 597 and 1676, pairwise 139, 443 and 1527),
// and at 4 and 8 ranks Bruck's rounds for the shortest (4 KiB: 58 for 70, 215 for 346). Four and eight ranks on two cores pay for messages and for waiting
// (gccl tune, a quiet machine, best of 2 to 8 rounds; µs): the fewest steps are best while data are short
// (AllReduce of 8 B, 4 ranks: recursive doubling 86, tree 121, one-shot 123, ring 354; AllGather of 64 KiB:
// doubling 83, direct 102, ring 123), then trees, whose ranks mostly forward (AllReduce of 128 KiB: 211 for
// 249; of 1 MiB, 8 ranks: 3140 for 5104 by a ring), at 4 ranks halving and doubling between (256 KiB: 458 for 489 by the
// circulant algorithm). Then it is between algorithms of which no core has the busier ranks, since a tree's inner ones, 0 and 2,
// are bound to the same: the circulant one, whose larger messages go between ranks at distance two, bound to the same core, in
// chunks of 1 MiB (512 KiB, 1, 2, 4, 8 and 16 MiB in 0.63, 1.09, 2.1, 4.4, 9.2 and 19 ms, halving and doubling 0.68, 1.19, 2.4, 4.8, 11 and
// 21, two trees 0.82, 1.41, 3.0 at 2 MiB; chunks of 512 KiB and 2 MiB are as good; medians of 4 and 5 rounds of 80 ms each: the first 5 to 20 calls of
// a size are slow by all, and two trees are the best of those). Reductions to a root are by a
// tree until its ranks' links are fuller than the root's (1 MiB, 8 ranks: direct 711, tree 1417). Sizes between
// the measured ones (factors of 2 at 4 ranks, 8 and more at 8) are split in the middle. Three ranks
// use what was best for four in an earlier run; five to seven were not measured.
var defaults = []row{
	{"tcp", 2, 2, schedule.AllReduce, false, 640 * kib, "direct.AllReduceOneShot", 1, 0},
	{"tcp", 2, 2, schedule.AllReduce, false, large, "direct.AllReduceTwoShot", 1, 0},
	{"tcp", 2, 2, schedule.Reduce, false, 512 * kib, "tree.Reduce", 1, 0},
	{"tcp", 2, 2, schedule.AllToAll, false, 512 * kib, "direct.AllToAllDirect", 1, 0},
	{"tcp", 2, 2, schedule.AllToAll, false, 3 * mib, "direct.AllToAllPairwise", 1, 0},
	{"tcp", 2, 2, schedule.AllToAll, false, large, "direct.AllToAllPairwise", 1, 16 * mib},
	{"tcp", 4, 4, schedule.AllReduce, false, 48 * kib, "direct.AllReduceRecursiveDoubling", 1, 0},
	{"tcp", 4, 4, schedule.AllReduce, false, 192 * kib, "tree.AllReduce", 1, 0},
	{"tcp", 4, 4, schedule.AllReduce, false, 384 * kib, "direct.AllReduceHalvingDoubling", 1, 0},
	{"tcp", 4, 4, schedule.AllReduce, false, large, "direct.AllReduceCirculant", 1, 1 * mib},
	{"tcp", 4, 4, schedule.AllGather, false, 8 * mib, "direct.AllGatherDoubling", 1, 0},
	{"tcp", 4, 4, schedule.AllGather, false, large, "direct.AllGatherDoubling", 1, 768 * kib},
	{"tcp", 4, 4, schedule.ReduceScatter, false, 512 * kib, "direct.ReduceScatterHalving", 1, 0},
	{"tcp", 4, 4, schedule.ReduceScatter, false, large, "direct.ReduceScatterDirect", 1, 0},
	{"tcp", 4, 4, schedule.AllToAll, false, 32 * kib, "direct.AllToAllBruck", 1, 0},
	{"tcp", 4, 4, schedule.AllToAll, false, 512 * kib, "direct.AllToAllDirect", 1, 0},
	{"tcp", 4, 4, schedule.AllToAll, false, 3 * mib, "direct.AllToAllPairwise", 1, 0},
	{"tcp", 4, 4, schedule.AllToAll, false, large, "direct.AllToAllPairwise", 1, 16 * mib},
	{"tcp", 4, 4, schedule.Broadcast, false, 48 * kib, "ring.Broadcast", 1, 0},
	{"tcp", 4, 4, schedule.Broadcast, false, 768 * kib, "tree.Broadcast", 1, 0},
	{"tcp", 4, 4, schedule.Broadcast, false, 8 * mib, "direct.BroadcastScatterAllGather", 2, 0},
	{"tcp", 4, 4, schedule.Broadcast, false, large, "tree.Broadcast", 2, 1 * mib},
	{"tcp", 4, 4, schedule.Reduce, false, 512 * kib, "tree.Reduce", 1, 0},
	{"tcp", 4, 4, schedule.Reduce, false, 1536 * kib, "direct.ReduceDirect", 2, 0},
	{"tcp", 4, 4, schedule.Reduce, false, large, "tree.Reduce", 1, 1 * mib},
	{"tcp", 3, 3, schedule.AllReduce, false, 32*kib + 1, "direct.AllReduceRecursiveDoubling", 1, 0},
	{"tcp", 3, 3, schedule.AllReduce, false, 192 * kib, "tree.AllReduce", 1, 0},
	{"tcp", 3, 3, schedule.AllReduce, false, 768 * kib, "ring.AllReduce", 1, 0},
	{"tcp", 3, 3, schedule.AllReduce, false, 8 * mib, "tree.AllReduce", 1, 0},
	{"tcp", 3, 3, schedule.AllReduce, false, large, "ring.AllReduce", 1, 0},
	{"tcp", 3, 3, schedule.AllGather, false, 512 * kib, "direct.AllGatherDirect", 1, 0},
	{"tcp", 3, 3, schedule.AllGather, false, large, "ring.AllGather", 1, 0},
	{"tcp", 8, 8, schedule.AllReduce, false, 12 * kib, "direct.AllReduceRecursiveDoubling", 1, 0},
	{"tcp", 8, 8, schedule.AllReduce, false, large, "tree.AllReduce", 1, 0},
	{"tcp", 8, 8, schedule.AllGather, false, 512 * kib, "direct.AllGatherDoubling", 1, 0},
	{"tcp", 8, 8, schedule.AllGather, false, large, "ring.AllGather", 1, 0},
	{"tcp", 8, 8, schedule.ReduceScatter, false, 64 * kib, "direct.ReduceScatterHalving", 1, 0},
	{"tcp", 8, 8, schedule.ReduceScatter, false, 512 * kib, "direct.ReduceScatterCirculant", 1, 0},
	{"tcp", 8, 8, schedule.ReduceScatter, false, large, "ring.ReduceScatter", 1, 0},
	{"tcp", 8, 8, schedule.AllToAll, false, 100 * kib, "direct.AllToAllBruck", 1, 0},
	{"tcp", 8, 8, schedule.AllToAll, false, 512 * kib, "direct.AllToAllDirect", 1, 0},
	{"tcp", 8, 8, schedule.AllToAll, false, 3 * mib, "direct.AllToAllPairwise", 1, 0},
	{"tcp", 8, 8, schedule.AllToAll, false, large, "direct.AllToAllPairwise", 1, 16 * mib},
	{"tcp", 8, 8, schedule.Broadcast, false, 8 * kib, "direct.BroadcastDirect", 1, 0},
	{"tcp", 8, 8, schedule.Broadcast, false, 512 * kib, "tree.Broadcast", 1, 0},
	{"tcp", 8, 8, schedule.Broadcast, false, large, "tree.Broadcast", 2, 0},
	{"tcp", 8, 8, schedule.Reduce, false, 512 * kib, "tree.Reduce", 1, 0},
	{"tcp", 8, 8, schedule.Reduce, false, 3 * mib, "direct.ReduceDirect", 2, 0},
	{"tcp", 8, 8, schedule.Reduce, false, large, "tree.Reduce", 1, 0},

	{"shm", 2, 2, schedule.AllReduce, false, 3 * mib / 2, "direct.AllReduceOneShot", 1, 0},
	{"shm", 2, 2, schedule.AllReduce, false, 12 * mib, "direct.AllReduceTwoShot", 1, 0},
	{"shm", 2, 2, schedule.AllReduce, false, 32*mib + 1, "direct.AllReduceOneShot", 1, 0},
	{"shm", 2, 2, schedule.AllReduce, false, large, "direct.AllReduceTwoShot", 2, 0},
	{"shm", 3, 4, schedule.AllReduce, false, 32*kib + 1, "direct.AllReduceOneShot", 1, 0},
	{"shm", 5, 8, schedule.AllReduce, false, 8*kib + 1, "direct.AllReduceOneShot", 1, 0},
	{"shm", 3, 8, schedule.AllReduce, false, large, "direct.AllReduceTwoShot", 1, 256 * kib},
	{"shm", 2, 2, schedule.AllReduce, true, 2 * kib, "direct.AllReduceOneShot", 1, 0},
	{"shm", 3, 4, schedule.AllReduce, true, 32 * kib, "direct.AllReduceOneShot", 1, 0},
	{"shm", 5, 8, schedule.AllReduce, true, 8*kib + 1, "direct.AllReduceOneShot", 1, 0},
	{"shm", 2, 8, schedule.AllReduce, true, large, "direct.AllReduceTwoShot", 1, 1 * mib},

	{"shm", 2, 8, schedule.ReduceScatter, false, large, "direct.ReduceScatterDirect", 1, 0},
	{"shm", 2, 8, schedule.ReduceScatter, true, large, "direct.ReduceScatterDirect", 1, 1 * mib},
	{"shm", 2, 2, schedule.AllGather, false, large, "direct.AllGatherDirect", 1, 0},
	{"shm", 3, 8, schedule.AllGather, false, large, "direct.AllGatherDirect", 1, 256 * kib},
	{"shm", 2, 8, schedule.AllGather, true, large, "direct.AllGatherDirect", 1, 1 * mib},
	{"shm", 2, 2, schedule.Broadcast, false, large, "direct.BroadcastDirect", 1, 0},
	{"shm", 3, 8, schedule.Broadcast, false, large, "direct.BroadcastDirect", 1, 256 * kib},
	{"shm", 2, 8, schedule.Broadcast, true, large, "direct.BroadcastDirect", 1, 1 * mib},
	{"shm", 2, 8, schedule.Reduce, false, large, "direct.ReduceDirect", 1, 0},
	{"shm", 2, 8, schedule.Reduce, true, large, "direct.ReduceDirect", 1, 1 * mib},
	{"shm", 2, 8, schedule.Gather, false, large, "direct.GatherDirect", 1, 0},
	{"shm", 2, 8, schedule.Gather, true, large, "direct.GatherDirect", 1, 1 * mib},
	{"shm", 2, 8, schedule.Scatter, false, large, "direct.ScatterDirect", 1, 0},
	{"shm", 2, 8, schedule.Scatter, true, large, "direct.ScatterDirect", 1, 1 * mib},
	{"shm", 2, 2, schedule.AllToAll, false, 2 * mib, "direct.AllToAllDirect", 1, 0},
	{"shm", 3, 4, schedule.AllToAll, false, 2 * mib, "direct.AllToAllDirect", 1, 256 * kib},
	{"shm", 5, 8, schedule.AllToAll, false, 512 * kib, "direct.AllToAllDirect", 1, 128 * kib},
	{"shm", 2, 2, schedule.AllToAll, false, large, "direct.AllToAllPairwise", 1, 0},
	{"shm", 3, 8, schedule.AllToAll, false, large, "direct.AllToAllPairwise", 1, 128 * kib},
	{"shm", 2, 2, schedule.AllToAll, true, 32 * kib, "direct.AllToAllDirect", 1, 0},
	{"shm", 3, 8, schedule.AllToAll, true, 2 * mib, "direct.AllToAllDirect", 1, 1 * mib},
	{"shm", 2, 8, schedule.AllToAll, true, large, "direct.AllToAllPairwise", 1, 1 * mib},
	{"shm", 2, 8, schedule.Scan, false, large, "direct.ScanLinear", 1, 0},
	{"shm", 2, 8, schedule.Exscan, false, large, "direct.ExscanLinear", 1, 0},
}

// defaultFor returns the row that fits, or nil. The loopback provider moves memory as shm does. Over tcp it is
// all the same where buffers lie, and between hosts, or with cores to spare for more than two ranks, nothing
// was measured.
func (t *Tuner) defaultFor(q Query) *row {
	provider := t.cfg.Class()
	if provider == "tcp" {
		if t.cfg.Hosts != nil || t.cfg.Size > 2 && t.load < 2 {
			return nil
		}
		q.Registered = false
	}
	if provider == "loopback" {
		provider = "shm"
	}
	for i := range defaults {
		r := &defaults[i]
		if r.provider == provider && r.from <= t.cfg.Size && t.cfg.Size <= r.to && r.collective == q.Collective &&
			r.registered == q.Registered && q.Bytes < r.below {
			return r
		}
	}
	return nil
}
