package direct

import "github.com/gccl/gccl/schedule"

// AllGatherBruck gathers in ⌈log_k p⌉ rounds for any p and any radix k: a rank that holds the
// blocks r … r+w−1 fetches the next w from each of the ranks r+w, r+2w, …, r+(k−1)w.
//
//	cost: radix k: ⌈log_k p⌉α + (p−1)/p·Sβ
//	      (k−1 messages in each of the rounds)
//
//	        r0      r1      r2      r3      r4
//	start   0       1       2       3       4
//	w = 1   01      12      23      34      40       each fetches from r+1
//	w = 2   0123    1234    2340    3401    4012     from r+2
//	w = 4   01234   12340   23401   34012   40123    from r+4, only what is missing
//
// Bruck, Ho, Kipnis, Upfal & Weathersby, 1997. Blocks go to their places at once, which replaces
// the rotation at the end of the paper's algorithm by a message cut in two where blocks wrap.
func AllGatherBruck(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	k := radix(shape)
	lane := schedule.Lane{copyTo(at(schedule.In, 0), at(schedule.Out, rank))}
	most := 0 // chunks that one rank sends another in one round
	for w := 1; w < size; w *= k {
		most = max(most, min(w, size-w))
		for d := w; d < size && d < k*w; d += w {
			to := (rank - d + size) % size
			cyclic(schedule.Out, rank, min(w, size-d), size, func(s schedule.Span) {
				lane = append(lane, send(to, s))
			})
		}
		for d := w; d < size && d < k*w; d += w {
			from := (rank + d) % size
			cyclic(schedule.Out, from, min(w, size-d), size, func(s schedule.Span) {
				lane = append(lane, recv(from, s))
			})
		}
	}
	return schedule.Schedule{
		Collective: schedule.AllGather, Rank: rank, Size: size,
		In: 1, Out: size, Lanes: []schedule.Lane{lane},
		Ahead: most, Early: true, Lazy: true,
	}, nil
}
