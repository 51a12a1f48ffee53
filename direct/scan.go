package direct

import "github.com/gccl/gccl/schedule"

// ScanLinear passes the prefix along the chain of ranks; with Shape.Pieces the chain is a pipeline.
//
//	cost: streamed: (p−1)α + Sβ + Sγ
//	      in k pieces, each a message: (p−2+k)·(α + S/k·(β + γ))
//
//	r0: x0 ──▶ r1: x0⊕x1 ──▶ r2: (x0⊕x1)⊕x2 ──▶ …
func ScanLinear(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	k := pieces(shape)
	lane := make(schedule.Lane, 0, 2*k)
	for i := range k {
		in, out := at(schedule.In, i), at(schedule.Out, i)
		if rank == 0 {
			lane = append(lane, copyTo(in, out))
		} else {
			lane = append(lane, reduceRecv(rank-1, in, out))
		}
		if rank+1 < size {
			lane = append(lane, send(rank+1, out))
		}
	}
	return schedule.Schedule{
		Collective: schedule.Scan, Rank: rank, Size: size,
		In: k, Out: k, Lanes: []schedule.Lane{lane},
		Early: true, Lazy: true,
	}, nil
}

// ExscanLinear is [ScanLinear] shifted by one rank: a rank keeps what arrives and passes on that
// combined with its own contribution. What arrives goes through scratch memory, because in place
// writing it to Out would destroy the contribution.
//
//	cost: streamed: (p−1)α + Sβ + ≤Sγ
//	      in k pieces, each a message: (p−2+k)·(α + S/k·(β + γ))
func ExscanLinear(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	k := pieces(shape)
	s := schedule.Schedule{
		Collective: schedule.Exscan, Rank: rank, Size: size,
		In: k, Out: k, Early: size <= 2, Lazy: size <= 2, // Scratch is used again in the next window.
	}
	var lane schedule.Lane
	for i := range k {
		in, out := at(schedule.In, i), at(schedule.Out, i)
		switch {
		case rank == 0 && size > 1:
			lane = append(lane, send(1, in))
		case rank == 0:
		case rank == size-1:
			lane = append(lane, recv(rank-1, out))
		default:
			got, sum := at(schedule.Scratch, 2*i), at(schedule.Scratch, 2*i+1)
			own := schedule.Chunk{Buf: schedule.In, Index: i}
			s.Scratch = append(s.Scratch, own, own)
			lane = append(lane, recv(rank-1, got),
				copyTo(got, sum), combine(in, sum), send(rank+1, sum), copyTo(got, out))
		}
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// ScanDoubling computes all prefixes in ⌈log₂ p⌉ rounds: in round j a rank passes what it has to
// the rank 2^j above it and puts what comes from 2^j below in front.
//
//	cost: ⌈log₂ p⌉α + ⌈log₂ p⌉·Sβ + ⌈log₂ p⌉·Sγ
//
//	        r0    r1    r2    r3          (Hillis & Steele 1986; ab is a⊕b)
//	start   a     b     c     d
//	1 up    a     ab    bc    cd
//	2 up    a     ab    abc   abcd
//
// The order of ranks is kept, the grouping differs from rank to rank.
func ScanDoubling(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	out := at(schedule.Out, 0)
	lane := schedule.Lane{copyTo(at(schedule.In, 0), out)}
	for d := 1; d < size; d *= 2 {
		if rank+d < size {
			lane = append(lane, send(rank+d, out))
		}
		if rank >= d {
			lane = append(lane, reduceRecv(rank-d, out, out))
		}
	}
	return schedule.Schedule{
		Collective: schedule.Scan, Rank: rank, Size: size,
		In: 1, Out: 1, Lanes: []schedule.Lane{lane},
		Ahead: min(1, size-1), Early: true, Lazy: size == 1, // Out grows on while a receiver may still read it.
	}, nil
}

// ExscanDoubling is [ScanDoubling] with a second value: the prefix without the rank's own
// contribution, built from the same messages.
//
//	cost: ⌈log₂ p⌉α + ⌈log₂ p⌉·Sβ + <2⌈log₂ p⌉·Sγ
func ExscanDoubling(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	own := schedule.Chunk{Buf: schedule.In}
	sum, got, out := at(schedule.Scratch, 0), at(schedule.Scratch, 1), at(schedule.Out, 0)
	lane := schedule.Lane{copyTo(at(schedule.In, 0), sum)}
	for d := 1; d < size; d *= 2 {
		if rank+d < size {
			lane = append(lane, send(rank+d, sum))
		}
		if rank < d {
			continue
		}
		lane = append(lane, recv(rank-d, got))
		if d == 1 {
			lane = append(lane, copyTo(got, out))
		} else {
			lane = append(lane, combineLeft(got, out))
		}
		if rank+2*d < size {
			lane = append(lane, combineLeft(got, sum))
		}
	}
	return schedule.Schedule{
		Collective: schedule.Exscan, Rank: rank, Size: size,
		In: 1, Out: 1, Scratch: []schedule.Chunk{own, own}, Lanes: []schedule.Lane{lane},
		// Neither early nor lazy: scratch is used again in the next round.
	}, nil
}
