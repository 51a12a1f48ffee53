package direct

import "github.com/gccl/gccl/schedule"

// BroadcastDirect sends the root's data straight to every other rank.
//
//	cost: α + (p−1)·Sβ
//
//	root ──x──▶ r0, r1, r2, …
func BroadcastDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.Broadcast, Rank: rank, Size: size, Root: shape.Root,
		Out: 1, Early: true, Lazy: true,
	}
	if rank != shape.Root {
		s.Lanes = []schedule.Lane{{recv(shape.Root, at(schedule.Out, 0))}}
		return s, nil
	}
	s.In = 1
	lane := make(schedule.Lane, 0, size)
	for k := 1; k < size; k++ {
		lane = append(lane, send((rank+k)%size, at(schedule.In, 0)))
	}
	s.Lanes = []schedule.Lane{append(lane, copyTo(at(schedule.In, 0), at(schedule.Out, 0)))}
	return s, nil
}

// ReduceDirect sends every rank's data straight to the root, which folds it in rank order.
//
//	cost: α + (p−1)·Sβ + (p−1)·Sγ, at the root
//
//	r0, r1, r2, … ──x──▶ root: Out = ((x0 ⊕ x1) ⊕ x2) ⊕ …
func ReduceDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.Reduce, Rank: rank, Size: size, Root: shape.Root,
		In: 1, Early: true, Lazy: true,
	}
	if rank != shape.Root {
		s.Lanes = []schedule.Lane{{send(shape.Root, at(schedule.In, 0))}}
		return s, nil
	}
	s.Out = 1
	s.Lanes = []schedule.Lane{fold(rank, size, at(schedule.In, 0), at(schedule.Out, 0))}
	return s, nil
}

// GatherDirect sends every rank's data straight to the root.
//
//	cost: α + (p−1)/p·Sβ, at the root
//
//	r0, r1, r2, … ──x──▶ root: Out = x0 x1 x2 …
func GatherDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.Gather, Rank: rank, Size: size, Root: shape.Root,
		In: 1, Early: true, Lazy: true,
	}
	if rank != shape.Root {
		s.Lanes = []schedule.Lane{{send(shape.Root, at(schedule.In, 0))}}
		return s, nil
	}
	s.Out = size
	lane := make(schedule.Lane, 0, size)
	lane = append(lane, copyTo(at(schedule.In, 0), at(schedule.Out, rank)))
	for k := 1; k < size; k++ {
		p := (rank + k) % size
		lane = append(lane, recv(p, at(schedule.Out, p)))
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// ScatterDirect sends every rank's block straight from the root.
//
//	cost: α + (p−1)/p·Sβ
//
//	root ──block 0──▶ r0, ──block 1──▶ r1, …
func ScatterDirect(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.Scatter, Rank: rank, Size: size, Root: shape.Root,
		Out: 1, Early: true, Lazy: true,
	}
	if rank != shape.Root {
		s.Lanes = []schedule.Lane{{recv(shape.Root, at(schedule.Out, 0))}}
		return s, nil
	}
	s.In = size
	lane := make(schedule.Lane, 0, size)
	for k := 1; k < size; k++ {
		p := (rank + k) % size
		lane = append(lane, send(p, at(schedule.In, p)))
	}
	s.Lanes = []schedule.Lane{append(lane, copyTo(at(schedule.In, rank), at(schedule.Out, 0)))}
	return s, nil
}
