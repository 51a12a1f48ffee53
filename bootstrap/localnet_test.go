package bootstrap

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of groups that not all ranks have joined, and all who did have left, a network keeps but the latest, for who is late.
func TestGroupsThatNeverFormedAreForgotten(t *testing.T) {
	n := NewLocalNet()
	const rounds = 10 * endedMost
	for i := range rounds {
		a, b := n.Join(fmt.Sprint(i), 0, 3), n.Join(fmt.Sprint(i), 1, 3)
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.NoError(t, b.Close())
		require.LessOrEqual(t, len(n.parts), endedMost+1)
	}
	late := n.Join(fmt.Sprint(rounds-1), 2, 3)
	require.ErrorIs(t, late.Barrier(t.Context()), ErrPeerClosed, "it need not wait for the others")
	require.NoError(t, late.Close())
	stays := n.Join("stays", 0, 2)
	for i := range rounds {
		require.NoError(t, n.Join(fmt.Sprint("again ", i), 0, 2).Close())
	}
	require.Contains(t, n.parts, "stays")
	require.NoError(t, n.Join("stays", 1, 2).Close())
	require.NotContains(t, n.parts, "stays")
	require.NoError(t, stays.Close())
}
