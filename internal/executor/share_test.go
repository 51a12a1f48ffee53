package executor

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
)

// pooled connects n ranks over memory, with pools.
func pooled(t *testing.T, n int) []*link.Mesh {
	ms, _ := meshesOf(t, n, link.Config{Geometry: link.Geometry{Lanes: 1, Slots: 4, SlotBytes: shareMin, PoolLanes: 1, PoolBytes: 2 * shareMin}})
	return ms
}

// Sends of one value to several peers are shared if all that the lane shares goes to the same peers: who waits for a
// slot then waits for nobody else.
func TestWhatIsShared(t *testing.T) {
	m := pooled(t, 4)[0]
	for _, tc := range []struct{ name, lane, want string }{
		{"one span", "send in[0] to 1; send in[0] to 2", "[true]"},
		{"a value", "recv out[0] from 1; send out[0] to 2; send out[0] to 3", "[true]"},
		{"the same peers", "send in[0] to 1; send in[0] to 2; recv out[0] from 3; send out[0] to 2; send out[0] to 1", "[true true]"},
		{"different peers", "send in[0] to 1; send in[0] to 2; send in[1] to 2; send in[1] to 3", "[false false]"},
		{"more peers", "send in[0] to 1; send in[0] to 2; send in[1] to 1; send in[1] to 2; send in[1] to 3", "[false false]"},
		{"one peer", "send in[0] to 1; send in[1] to 2", "[false false]"},
		{"others to one", "send in[0] to 1; send in[0] to 2; send in[1] to 3", "[true false]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "allreduce rank 0 of 4 root 0 in 2 out 2 ahead 0\nlane\n"
			s, err := schedule.Parse(text + strings.ReplaceAll(tc.lane, ";", "\n"))
			require.NoError(t, err)
			prog, err := Compile(s)
			require.NoError(t, err)
			p, err := prog.Plan(m, Layout{Elem: 1, In: []int{2 * shareMin}, Out: []int{2 * shareMin}}, 0)
			require.NoError(t, err)
			var shared []bool
			for i := range p.lanes[0] {
				shared = append(shared, p.lanes[0][i].shared != nil)
			}
			require.Equal(t, tc.want, fmt.Sprint(shared))
		})
	}
}

// A rank that waits for room in its pool says for whom, and notices the end of a peer that would make some.
func TestWaitingForThePool(t *testing.T) {
	ms := pooled(t, 3)
	m := ms[0]
	s, err := direct.BroadcastDirect(0, 3, schedule.Shape{})
	require.NoError(t, err)
	prog, err := Compile(s)
	require.NoError(t, err)
	const n = 10 * 2 * shareMin // the pool has room for four pieces
	p, err := prog.Plan(m, Layout{Elem: 1, In: []int{n}, Out: []int{n}}, 0)
	require.NoError(t, err)
	e := New(m, Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}}})
	b := make([]byte, n)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, e.Run(ctx, 0, []*Job{{Plan: p, Args: Args{In: b, Out: b, Call: link.Call{FP: 7}}}}), context.Canceled)
	require.ElementsMatch(t, []int{1, 2}, e.WaitsFor(nil))
	require.ElementsMatch(t, []int{1, 2}, e.Lanes()[0].WaitsFor)
	_, room := m.Peer(1).Sender(0).Reserve(shareMin)
	require.True(t, room, "no slot of a link has been used")

	ms[2].Goodbye()
	var gone *Gone
	require.ErrorAs(t, e.Run(context.Background(), 3*time.Second, []*Job{{Plan: p, Args: Args{In: b, Out: b, Call: link.Call{FP: 7}}}}), &gone)
	require.Equal(t, 2, gone.Notice.Culprit)
}

// A short piece of what is long goes by the links, and it is their room that is waited for then.
func TestWaitingForLinksBesideThePool(t *testing.T) {
	ms := pooled(t, 4)
	s, err := schedule.Parse("allreduce rank 0 of 4 root 0 in 1 out 1 ahead 0\nlane\nrecv out[0] from 3\nsend out[0] to 1\nsend out[0] to 2")
	require.NoError(t, err)
	prog, err := Compile(s)
	require.NoError(t, err)
	p, err := prog.Plan(ms[0], Layout{Elem: 1, In: []int{2 * shareMin}, Out: []int{2 * shareMin}}, 0)
	require.NoError(t, err)
	require.NotNil(t, p.lanes[0][0].shared)
	call := link.Call{FP: 7}
	for range ms[0].Geometry().Slots {
		b, ok := ms[0].Peer(2).Sender(0).Reserve(shareMin) // a slot
		require.True(t, ok)
		ms[0].Peer(2).Sender(0).Commit(len(b), &call)
	}
	from := ms[3].Peer(0).Sender(0)
	b, ok := from.Reserve(link.SpreadBytes + 1)
	require.True(t, ok)
	from.Commit(len(b), &call)
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	buf := make([]byte, 2*shareMin)
	require.ErrorIs(t, e.Run(ctx, 0, []*Job{{Plan: p, Args: Args{In: buf, Out: buf, Call: call}}}), context.Canceled)
	require.Equal(t, []int{2}, e.WaitsFor(nil))
}
