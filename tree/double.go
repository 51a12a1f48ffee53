package tree

import "github.com/gccl/gccl/schedule"

// AllReduceDouble reduces and broadcasts each half of the data along one of two trees, which the
// file binary.go describes, every tree and phase on a lane of its own so that all overlap. The root
// waits for a whole piece before it sends that down: use several pieces or windows.
//
//	cost: streamed: ≤2⌈log₂ p⌉α + ≤2Sβ + ≤Sγ
//
//	lane 0, 1   up the first and the second tree, to rank 0
//	lane 2, 3   down again, as soon as rank 0 has a piece complete
//
// Sanders, Speck & Träff 2009; the same idea is NCCL's tree algorithm.
func AllReduceDouble(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	m := pieces(shape)
	s := schedule.Schedule{
		Collective: schedule.AllReduce, Rank: rank, Size: size,
		In: 2 * m, Out: 2 * m, Lanes: make([]schedule.Lane, 4), Early: true, Lazy: true,
	}
	for t := range 2 {
		n := double(t == 1, rank, size)
		s.Lanes[t], s.Lanes[2+t] = n.both(t*m, m, t)
	}
	return s, nil
}

// BroadcastDouble sends each half of the root's data down one of two trees, which the file
// binary.go describes, on two lanes.
//
//	cost: streamed: ≤⌈log₂ p⌉α + ≤Sβ
func BroadcastDouble(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	v, m := (rank-shape.Root+size)%size, pieces(shape)
	s := schedule.Schedule{
		Collective: schedule.Broadcast, Rank: rank, Size: size, Root: shape.Root,
		Out: 2 * m, Lanes: make([]schedule.Lane, 2), Early: true, Lazy: true,
	}
	for t := range 2 {
		n := double(t == 1, v, size).renamed(rotated(shape.Root, size))
		s.Lanes[t] = n.down(t*m, m, schedule.In, never)
		if v == 0 {
			s.In = 2 * m
			s.Lanes[t] = append(s.Lanes[t], copyTo(span(schedule.In, t*m, m), span(schedule.Out, t*m, m)))
		}
	}
	return s, nil
}

// ReduceDouble reduces each half of the data to the root along one of two trees, which the file
// binary.go describes, on two lanes.
//
//	cost: streamed: ≤⌈log₂ p⌉α + Sβ + ≤Sγ
func ReduceDouble(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	v, m := (rank-shape.Root+size)%size, pieces(shape)
	s := schedule.Schedule{
		Collective: schedule.Reduce, Rank: rank, Size: size, Root: shape.Root,
		In: 2 * m, Lanes: make([]schedule.Lane, 2),
		Early: true, Lazy: size <= 2, // Partial results in scratch are overwritten in the next window.
	}
	for t := range 2 {
		n := double(t == 1, v, size).renamed(rotated(shape.Root, size))
		s.Lanes[t] = n.up(t*m, m, sums(&s, &n, t*m, m))
	}
	return s, nil
}
