package executor

import "time"

// stores decides, for one peer, whether what is staged for it is written through the cache or past
// it. Lines that the peer has just read have to be taken back from its cache before they can be
// written; where the two cores are far apart that is several times slower than a store past the
// cache, and where they are near it is not. So one block in some is timed each way, and the faster
// way is taken.
type stores struct {
	past  bool
	count int
	rate  [2]float64 // bytes per nanosecond through and past the cache, a moving average
}

const (
	// storeMin is the shortest block for which the way matters (measured: none below 4 KiB).
	storeMin = 4 << 10
	// storeEvery is how many blocks pass between two that are timed the other way.
	storeEvery = 64
	// storeGain is by how much the other way must be faster.
	storeGain = 1.2
)

// next returns the way of the next block, and whether to time it.
func (s *stores) next() (past, timed bool) {
	s.count++
	switch s.count % storeEvery {
	case 0, 1:
		return !s.past, true
	case storeEvery / 2:
		return s.past, true
	}
	return s.past, false
}

// took reports the time of a block.
func (s *stores) took(past bool, n int, d time.Duration) {
	i := 0
	if past {
		i = 1
	}
	r := float64(n) / float64(max(d, 1))
	if s.rate[i] == 0 {
		s.rate[i] = r
	} else {
		s.rate[i] += (r - s.rate[i]) / 4
	}
	mine, other := s.rate[0], s.rate[1]
	if s.past {
		mine, other = other, mine
	}
	if mine > 0 && other > storeGain*mine {
		s.past = !s.past
	}
}
