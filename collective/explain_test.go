package collective_test

import (
	"testing"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

func TestPlan(t *testing.T) {
	comms, err := collective.NewLocal(t.Context(), 3, collective.Config{})
	require.NoError(t, err)
	c := comms[1]
	x := tensor.Of(make([]float32, 10))
	info, err := c.Plan(collective.Call{Kind: collective.AllReduce, Dst: x, Src: x, Op: tensor.Sum})
	require.NoError(t, err)
	require.Contains(t, info.Algorithm, "AllReduce")
	require.Equal(t, []string{"loopback"}, info.Providers)
	require.Equal(t, 1, info.Windows)
	require.GreaterOrEqual(t, info.Lanes, info.Channels)

	large := tensor.Of(make([]float32, 8<<20))
	info, err = c.Plan(collective.Call{Kind: collective.AllReduce, Dst: large, Src: large, Op: tensor.Sum})
	require.NoError(t, err)
	require.Greater(t, info.Windows, 1)

	info, err = c.Plan(collective.Call{Kind: collective.Send, Src: x, Peer: 2})
	require.NoError(t, err)
	require.Equal(t, "transfer", info.Algorithm)

	_, err = c.Plan(collective.Call{Kind: collective.AllReduce, Dst: x, Src: x, Op: tensor.BitAnd})
	require.ErrorIs(t, err, collective.ErrInvalid)
	for _, c := range comms {
		require.NoError(t, c.Close())
	}
	_, err = c.Plan(collective.Call{Kind: collective.Barrier})
	require.ErrorIs(t, err, collective.ErrClosed)
}
