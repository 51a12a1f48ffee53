package executor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// play stores blocks, each of which takes so long through or past the cache, and counts those that went past it.
func play(s *stores, blocks int, through, past time.Duration) (pasts int) {
	for range blocks {
		p, timed := s.next()
		d := through
		if p {
			d, pasts = past, pasts+1
		}
		if timed {
			s.took(p, 1<<20, d)
		}
	}
	return pasts
}

func TestStoresTakeTheFasterWay(t *testing.T) {
	var s stores
	play(&s, 2*storeEvery, 300, 100)
	require.True(t, s.past)
	play(&s, 20*storeEvery, 300, 100)
	require.Equal(t, 8*storeMost-2*8, play(&s, 8*storeMost, 300, 100), "the slower way is tried less and less")

	play(&s, storeMost+8*storeEvery, 100, 300) // the ranks have moved: found out once, then looked at often
	require.False(t, s.past)
}

// What is nearly as fast is no reason to change.
func TestStoresStay(t *testing.T) {
	var s stores
	require.Equal(t, 6, play(&s, 3*storeEvery, 110, 100))
	require.False(t, s.past)
}
