package ring

import "github.com/gccl/gccl/schedule"

// Broadcast passes the root's data along a chain root ─▶ root+1 ─▶ … ─▶ root−1, in k = Shape.Pieces
// pieces that follow each other.
//
//	step                 1   2   3   4        k = 3, p = 3
//	root ─▶ root+1       0   1   2
//	root+1 ─▶ root+2         0   1   2
//
// Cost: p−2+k steps of S/k bytes; every rank but the last sends S. An executor that cuts chunks
// into segments overlaps the ranks in the same way inside a chunk, so that few pieces are enough.
//
// Nobody waits for whom it sends to: Ahead is 0. It is Early and Lazy: Out is written once.
func Broadcast(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	pieces := max(shape.Pieces, 1)
	s, err := begin(schedule.Broadcast, rank, size, shape, pieces)
	if err != nil {
		return s, err
	}
	s.Early, s.Lazy = true, true
	if size == 1 {
		s.Lanes = alone(s)
		return s, nil
	}
	place := mod(rank-shape.Root, size) // in the chain
	w := newWalker(rank, size, 2*pieces)
	for i := range pieces {
		switch {
		case place == 0:
			w.send(in(i))
		case place < size-1:
			w.recv(out(i))
			w.send(out(i))
		default:
			w.recv(out(i))
		}
	}
	if place == 0 {
		for i := range pieces {
			w.copy(out(i), in(i)) // after all Sends: nobody waits for it
		}
	}
	s.Lanes = []schedule.Lane{w.lane}
	return s, nil
}

// Reduce passes partial results along a chain root+1 ─▶ root+2 ─▶ … ─▶ root, in k = Shape.Pieces
// pieces that follow each other.
//
//	step                 1   2   3   4        k = 3, p = 3
//	root+1 ─▶ root+2     0   1   2
//	root+2 ─▶ root           0   1   2
//
// Cost: p−2+k steps of S/k bytes; every rank but the root sends S. The result is
// ((x_root+1 ⊕ x_root+2) ⊕ …) ⊕ x_root, which is the order of the ranks if the root is the last.
//
// Nobody waits for whom it sends to: Ahead is 0. Partial results pass through Scratch, which the
// next window overwrites without asking: it cannot be Lazy. An executor that streams the groups of
// [schedule.Fuse] stores nothing there.
func Reduce(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	pieces := max(shape.Pieces, 1)
	s, err := begin(schedule.Reduce, rank, size, shape, pieces)
	if err != nil {
		return s, err
	}
	s.Early = true
	if size == 1 {
		s.Lanes = alone(s)
		return s, nil
	}
	place := mod(rank-shape.Root-1, size) // in the chain
	w := newWalker(rank, size, 2*pieces)
	for i := range pieces {
		switch {
		case place == 0:
			w.send(in(i))
		case place < size-1:
			s.Scratch = append(s.Scratch, schedule.Chunk{Buf: schedule.In, Index: i})
			w.reduce(scratch(i), in(i), false)
			w.send(scratch(i))
		default:
			w.reduce(out(i), in(i), true)
		}
	}
	s.Lanes = []schedule.Lane{w.lane}
	return s, nil
}
