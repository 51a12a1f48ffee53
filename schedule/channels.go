package schedule

// Channels returns n copies of a schedule that work side by side: each on its own share of the
// chunks of every block, on lanes of its own. Copy c has the chunks [c·p, (c+1)·p) of the n·p
// chunks that now divide a block, where p is s.PerBlock(), and lane l of copy c is lane
// c·len(s.Lanes)+l. Applied with the same n on every rank it keeps every property of s.
//
// A span over the chunks of several blocks becomes one step per block, because the share of one
// copy has gaps there; both ends of a link divide their spans alike.
//
// The result shares no memory with s. n below 2 returns s itself.
func Channels(s Schedule, n int) Schedule {
	if n < 2 {
		return s
	}
	p := s.PerBlock()
	out := s
	out.In, out.Out = n*s.In, n*s.Out
	out.Scratch = nil
	out.Lanes = make([]Lane, 0, n*len(s.Lanes))
	for c := range n {
		for _, ch := range s.Scratch {
			out.Scratch = append(out.Scratch, Chunk{ch.Buf, share(ch.Index, p, c, n)})
		}
		// steps[l][k] is how many steps the first k steps of lane l have become.
		steps := make([][]int, len(s.Lanes))
		lanes := make([]Lane, len(s.Lanes))
		for l, lane := range s.Lanes {
			steps[l] = make([]int, 1, len(lane)+1)
			lanes[l] = make(Lane, 0, len(lane))
			for i := range lane {
				lanes[l] = appendShares(lanes[l], &s, lane[i], p, c, n)
				steps[l] = append(steps[l], len(lanes[l]))
			}
		}
		for _, lane := range lanes {
			for i := range lane {
				if a := &lane[i].After; a.Steps > 0 {
					a.Steps = steps[a.Lane][a.Steps]
					a.Lane += c * len(s.Lanes)
				}
			}
		}
		out.Lanes = append(out.Lanes, lanes...)
	}
	return out
}

// share is the place of chunk i in copy c of n.
func share(i, p, c, n int) int { return i/p*n*p + c*p + i%p }

// appendShares appends a step as copy c does it, cut where a block ends.
func appendShares(lane Lane, s *Schedule, st Step, p, c, n int) Lane {
	ref := st.Src
	if ref.Count == 0 {
		ref = st.Dst
	}
	move := func(sp Span, from, count int) Span {
		switch {
		case sp.Count == 0:
			return sp
		case sp.Buf == Scratch:
			sp.First += c*len(s.Scratch) + from
		default:
			sp.First = share(sp.First+from, p, c, n)
		}
		sp.Count = count
		return sp
	}
	for from := 0; from < ref.Count; {
		// Src and Dst, and the span at the other end, have chunks of equal classes in pairs, so
		// that they come to the end of a block together.
		count := 1
		for from+count < ref.Count && s.chunkClass(ref.Buf, ref.First+from+count, p) != 0 {
			count++
		}
		part := st
		part.Src, part.Dst = move(st.Src, from, count), move(st.Dst, from, count)
		if from > 0 {
			part.After = After{}
		}
		lane = append(lane, part)
		from += count
	}
	return lane
}
