package executor

import (
	"context"
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
	"github.com/stretchr/testify/require"
)

// The step that an error names is the one that met it, in a plan of small messages, too.
func TestErrorOfASmallPlanNamesItsLane(t *testing.T) {
	ms := meshes(t, link.Geometry{Lanes: 2, Slots: 2, SlotBytes: 64})
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}, Spins: 100}})
	prog := &Program{Schedule: schedule.Schedule{Out: 2, Lanes: make([]schedule.Lane, 2)}}
	for i := range 2 {
		dst := schedule.At(schedule.Out, i)
		prog.lanes = append(prog.lanes, []group{{Group: schedule.Group{End: 1, Dst: dst}, operands: []operand{{recv: true, peer: 1}}}})
	}
	p, err := prog.Plan(ms[0], Layout{Elem: 1, Out: []int{16}}, 0)
	require.NoError(t, err)
	require.True(t, e.sprints && p.small)
	s := ms[1].Peer(0).Sender(1)
	_, ok := s.Reserve(8)
	require.True(t, ok)
	s.Commit(8, &link.Call{FP: 8})
	var other *link.Mismatch
	require.ErrorAs(t, e.Run(context.Background(), 0, []*Job{{Plan: p, Args: Args{Out: make([]byte, 16), Call: link.Call{FP: 7}}}}), &other)
	at, ok := e.Position()
	require.True(t, ok)
	require.Equal(t, 1, at.Lane)
}
