package collective

import (
	"math/rand/v2"
	"testing"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// What apart says of random groups is what looking at every pair says. Both answers come about equally often.
func TestGroupsTensorsAreApart(t *testing.T) {
	c := &Comm{rank: 0, size: 3}
	mem := make([]byte, 60)
	random := rand.New(rand.NewPCG(1, 2))
	part := func() tensor.Tensor {
		at := random.IntN(len(mem))
		return tensor.Of(mem[at:][:random.IntN(min(6, len(mem)-at))])
	}
	overlapping := 0
	const groups = 5000
	for range groups {
		calls := make([]Call, 1+random.IntN(6))
		for i := range calls {
			switch call := &calls[i]; random.IntN(4) {
			case 0:
				*call = Call{Kind: Send, Src: part(), Peer: 1}
			case 1:
				*call = Call{Kind: Recv, Dst: part(), Peer: 1}
			case 2:
				*call = Call{Kind: Broadcast, Dst: part(), Src: part(), Root: random.IntN(2)} // no source but at rank 0
			default:
				x := part()
				*call = Call{Kind: AllReduce, Dst: x, Src: x}
			}
		}
		want := false
		for i := range calls {
			for j := range calls {
				if dst, _ := c.needs(&calls[i]); i != j && dst {
					d, s := c.needs(&calls[j])
					want = want || d && tensor.Compare(calls[i].Dst, calls[j].Dst) != tensor.Disjoint ||
						s && tensor.Compare(calls[i].Dst, calls[j].Src) != tensor.Disjoint
				}
			}
		}
		err := c.apart(&grouping{}, calls)
		if want {
			overlapping++
			require.ErrorIs(t, err, ErrInvalid, "%v", calls)
		} else {
			require.NoError(t, err, "%v", calls)
		}
	}
	require.InDelta(t, groups/2, overlapping, groups/4)
}
