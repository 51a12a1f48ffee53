package direct

import "github.com/gccl/gccl/schedule"

// BroadcastScatterAllGather scatters the root's vector along a binomial tree and gathers it
// everywhere by Bruck's algorithm, skipping what a rank already has: for long vectors.
//
//	cost: 2⌈log₂ p⌉α + 2(p−1)/p·Sβ
//
//	ranks counted from the root; p = 4
//	scatter     0: 0123    2: 23      1: 1     3: 3
//	w = 1       0: 0123    2: 23      1: 12    3: 30
//	w = 2       0: 0123    2: 2301    1: 1230  3: 3012
//
// Barnett et al. 1994, van de Geijn; Thakur, Rabenseifner & Gropp 2005.
func BroadcastScatterAllGather(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
	if err := check(rank, size, shape); err != nil {
		return schedule.Schedule{}, err
	}
	s := schedule.Schedule{
		Collective: schedule.Broadcast, Rank: rank, Size: size, Root: shape.Root,
		Out: size, Early: true, Lazy: true,
	}
	v := (rank - shape.Root + size) % size
	rankOf := func(v int) int { return (v + shape.Root) % size }
	var lane schedule.Lane
	buf := schedule.Out
	if v == 0 {
		s.In = size
		buf = schedule.In
	} else {
		lane = append(lane, recv(rankOf(v&(v-1)), span(schedule.Out, v, subtree(v, size))))
	}
	for d := subtreeBit(v, size) / 2; d > 0; d /= 2 {
		if c := v + d; c < size {
			lane = append(lane, send(rankOf(c), span(buf, c, subtree(c, size))))
		}
	}
	if v == 0 {
		lane = append(lane, copyTo(span(schedule.In, 0, size), span(schedule.Out, 0, size)))
	}
	// missing calls f with the chunks v+from … that rank v lacks of those it is due in the round w.
	missing := func(v, w int, f func(schedule.Span)) {
		from := max(w, subtree(v, size))
		if to := min(2*w, size); from < to {
			cyclic(schedule.Out, v+from, to-from, size, f)
		}
	}
	for w := 1; w < size; w *= 2 {
		s.Ahead = max(s.Ahead, min(w, size-w))
		to, from := (v-w+size)%size, (v+w)%size
		missing(to, w, func(sp schedule.Span) { lane = append(lane, send(rankOf(to), sp)) })
		missing(v, w, func(sp schedule.Span) { lane = append(lane, recv(rankOf(from), sp)) })
	}
	s.Lanes = []schedule.Lane{lane}
	return s, nil
}

// subtreeBit is the size of the subtree of rank v in a full binomial tree of at least size ranks:
// the lowest set bit of v, for the root the least power of two that is not below size.
func subtreeBit(v, size int) int {
	if v != 0 {
		return v & -v
	}
	return ceilPower(size)
}

// subtree is how many of size ranks the subtree of v has: v … v+subtree−1.
func subtree(v, size int) int { return min(subtreeBit(v, size), size-v) }

// scatterAllGatherSent is how many of the size chunks rank v, counted from the root, sends.
func scatterAllGatherSent(v, size int) int {
	n := 0
	for d := subtreeBit(v, size) / 2; d > 0; d /= 2 {
		if v+d < size {
			n += subtree(v+d, size)
		}
	}
	for w := 1; w < size; w *= 2 {
		n += max(0, min(2*w, size)-max(w, subtree((v-w+size)%size, size)))
	}
	return n
}
