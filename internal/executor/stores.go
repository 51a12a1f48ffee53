package executor

import "time"

// stores decides, for one peer, whether what is staged for it is written through the cache or past
// it. Lines that the peer has just read have to be taken back from its cache before they can be
// written; where the two cores are far apart that is several times slower than a store past the
// cache, and where they are near it is not. So a block in some is timed each way, and the faster
// way is taken.
type stores struct {
	past  bool
	until int        // blocks until the next that goes the other way
	every int        // blocks between two such times, a multiple of storeEvery; 0: storeEvery
	rate  [2]float64 // bytes per nanosecond through and past the cache, a moving average
}

const (
	// storeMin is the shortest block for which the way matters (measured: none up to 4 KiB).
	storeMin = 4<<10 + 1
	// storeEvery is how many blocks pass between two that are timed the other way, storeMost how many in the end if
	// that way stays the slower one: it may take three times as long, so that two in 64 cost 6 %.
	storeEvery = 64
	storeMost  = 1024
	// storeGain is by how much the other way must be faster.
	storeGain = 1.2
)

// next returns the way of the next block, and whether to time it.
func (s *stores) next() (past, timed bool) {
	if s.until == 0 {
		s.until = max(s.every, storeEvery)
	}
	s.until--
	switch s.until {
	case 0, 1: // the first of them takes back what the usual way left in caches
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
	switch {
	case mine > 0 && other > storeGain*mine:
		s.past, s.every = !s.past, storeEvery
	case past != s.past && r > mine || past == s.past && r < other:
		s.every = storeEvery // the averages may follow
	case s.until == 0:
		s.every = min(2*max(s.every, storeEvery), storeMost)
	}
}
