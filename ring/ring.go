// Package ring makes schedules in which every rank talks to its two neighbours only: it receives
// from rank−1 and sends to rank+1, modulo the number of ranks.
//
// Rings and chains move the least data that is possible and need the most steps, so they suit long
// messages and few ranks. With p ranks and a message of S bytes a rank sends
//
//	AllReduce      2(p−1) steps of S/p      2S(p−1)/p bytes
//	ReduceScatter   (p−1) steps of S/p       S(p−1)/p
//	AllGather       (p−1) steps of S/p       S(p−1)/p
//	Broadcast       k steps of S/k           S             the last rank is done after p−2+k steps
//	Reduce          k steps of S/k           S             the root is done after p−2+k steps
//
// where k is Shape.Pieces. The first three are optimal in bandwidth (Patarasuk and Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69,
// 2009).
package ring

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// begin checks the arguments and returns an empty schedule of one lane for them, with perBlock
// chunks a block.
func begin(c schedule.Collective, rank, size int, shape schedule.Shape, perBlock int) (schedule.Schedule, error) {
	root := 0
	if c.Rooted() {
		root = shape.Root
	}
	switch {
	case size < 1:
		return schedule.Schedule{}, fmt.Errorf("ring: %v: size %d", c, size)
	case rank < 0 || rank >= size:
		return schedule.Schedule{}, fmt.Errorf("ring: %v: rank %d outside %d ranks", c, rank, size)
	case root < 0 || root >= size:
		return schedule.Schedule{}, fmt.Errorf("ring: %v: root %d outside %d ranks", c, root, size)
	case shape.Pieces < 0:
		return schedule.Schedule{}, fmt.Errorf("ring: %v: %d pieces", c, shape.Pieces)
	}
	in, out := c.Blocks(rank, size, root)
	return schedule.Schedule{
		Collective: c, Rank: rank, Size: size, Root: root,
		In: in * perBlock, Out: out * perBlock,
		Lanes: make([]schedule.Lane, 1),
	}, nil
}

// mod is the rank that stands i places further along a ring of n; i may be negative, down to −n.
func mod(i, n int) int { return (i + n) % n }
