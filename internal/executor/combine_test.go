package executor

import (
	"bytes"
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// A message that has landed in the destination (link.Receiver.Expect), but too far on, overlaps its place.
// What is passed on is the message all the same.
func TestPassingOnWhatOverlapsItsPlace(t *testing.T) {
	for _, past := range []bool{false, true} {
		sum, err := tensor.NewReducer(tensor.Uint8, tensor.Sum, 2)
		require.NoError(t, err)
		for _, red := range []*tensor.Reducer{nil, sum} {
			out := make([]byte, 150)
			for i := range out {
				out[i] = byte(i)
			}
			want := bytes.Clone(out[50:])
			slots := [2][]byte{make([]byte, 100), make([]byte, 100)}
			a := &action{hasDst: true, store: true, operands: []source{{recv: 0}}, sends: make([]link.Sender, 2)}
			l := &lane{job: &Job{Args: Args{Reducer: red}}}
			e := New(meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})[0], Options{})
			e.combineBy(l, a, [][]byte{out[:100], slots[0], slots[1]}, [][]byte{out[50:]}, 100, ways{past: past})
			require.Equal(t, want, out[:100])
			require.Equal(t, want, slots[0])
			require.Equal(t, want, slots[1])
		}
	}
}

// Whatever is written past the cache, and however destinations lie in their lines, all of them get the sum.
func TestCombineEveryWay(t *testing.T) {
	const n = 2*pastBlock + 1000
	sum, err := tensor.NewReducer(tensor.Uint8, tensor.Sum, 2)
	require.NoError(t, err)
	srcs, want := [][]byte{make([]byte, n), make([]byte, n)}, make([]byte, n)
	for i := range want {
		srcs[0][i], srcs[1][i] = byte(i), byte(3*i+i>>8)
		want[i] = srcs[0][i] + srcs[1][i]
	}
	e := New(meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64})[0], Options{})
	e.pastOps = make([][]byte, 2)
	l := &lane{job: &Job{Args: Args{Reducer: sum}}}
	for _, w := range []ways{{}, {past: true}, {leave: true}, {past: true, leave: true}} {
		for sends := range 3 {
			a := &action{hasDst: true, store: true, operands: []source{{recv: 0}, {recv: -1}}, sends: make([]link.Sender, sends)}
			dsts := make([][]byte, 1+sends)
			for i := range dsts {
				dsts[i] = make([]byte, n+64)[7*i:][:n]
			}
			e.combineBy(l, a, dsts, srcs, n, w)
			for i, d := range dsts {
				require.Equal(t, want, d, "%+v, destination %d of %d", w, i, len(dsts))
			}
		}
	}
}
