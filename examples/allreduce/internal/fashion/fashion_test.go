package fashion

import (
	"bytes"
	"compress/gzip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoad(t *testing.T) {
	s, err := Load()
	require.NoError(t, err)
	require.Equal(t, 2000, s.Len())
	var per [Classes]int
	for _, l := range s.Labels {
		per[l]++
	}
	for c, n := range per {
		require.InDelta(t, 200, n, 40, "class %d", c)
	}
	require.Less(t, len(images)+len(labels), 1<<20)
	// The first image of the set, an ankle boot, begins with three dark rows.
	require.EqualValues(t, 9, s.Labels[0])
	require.Equal(t, make([]byte, 3*28), s.Images[:3*28])
	require.Equal(t, s.Images[Pixels:2*Pixels], s.Slice(1, 2).Images)
}

func TestBadIDX(t *testing.T) {
	pack := func(b ...byte) []byte {
		var out bytes.Buffer
		z := gzip.NewWriter(&out)
		_, err := z.Write(b)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		return out.Bytes()
	}
	good := []byte{0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 5, 6}
	b, err := idx(pack(good...), 2)
	require.NoError(t, err)
	require.Equal(t, []byte{5, 6}, b)
	for _, bad := range [][]byte{{}, {0, 0, 8, 1, 0, 0, 0, 1, 0, 0, 0, 2, 5, 6}, {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 3, 5, 6}, good[:13]} {
		_, err := idx(pack(bad...), 2)
		require.Error(t, err, "%v", bad)
	}
	_, err = idx(good, 2)
	require.Error(t, err)
}
