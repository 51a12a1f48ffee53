package executor

import (
	"context"
	"slices"
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/schedule"
	"github.com/stretchr/testify/require"
)

// planned is the plan of a schedule in text for buffers of n bytes.
func planned(t *testing.T, m *link.Mesh, n int, text string) *Plan {
	s, err := schedule.Parse(text)
	require.NoError(t, err)
	prog, err := Compile(s)
	require.NoError(t, err)
	p, err := prog.Plan(m, Layout{Elem: 1, In: []int{n}, Out: []int{n}}, 0)
	require.NoError(t, err)
	return p
}

// placing is an engine of rank 0 of three whose action sends the finished Out, of n bytes, on to the others, which may have it placed.
func placing(t *testing.T, ms []*link.Mesh, n int) (*Engine, *lane) {
	p := planned(t, ms[0], n, "allreduce rank 0 of 3 root 0 in 1 out 1 ahead 0 early\nlane\nrecv out[0] from 1 final\nsend out[0] to 1\nsend out[0] to 2")
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}}})
	b := make([]byte, n)
	e.start([]*Job{{Plan: p, Args: Args{In: b, Out: b, Call: link.Call{FP: 7}}}})
	l := &e.lanes[0]
	require.True(t, l.acts[0].placeable)
	require.Len(t, l.acts[0].sends, 2)
	return e, l
}

// arrive sends n bytes from rank 1 to rank 0.
func arrive(t *testing.T, ms []*link.Mesh, n int) {
	s := ms[1].Peer(0).Sender(0)
	b, ok := s.Reserve(n)
	require.True(t, ok)
	require.Len(t, b, n)
	for i := range b {
		b[i] = 5
	}
	s.Commit(n, &link.Call{FP: 7})
}

// Where one peer's place is too short, what it is sent is not told as placed, too.
func TestPlaceTooShort(t *testing.T) {
	const n = 256
	ms := pooled(t, 3)
	e, l := placing(t, ms, n)
	places := [3][]byte{nil, make([]byte, n), make([]byte, n-1)}
	l.answer(1, places[1])
	l.answer(2, places[2])
	arrive(t, ms, n)
	_, err := e.advance(l)
	require.NoError(t, err)
	require.True(t, l.over)
	for r := 1; r <= 2; r++ {
		in := ms[r].Peer(0).Receiver(0)
		m, err := in.Peek(&link.Call{FP: 7})
		require.NoError(t, err)
		require.Equal(t, n, m.Len)
		require.Equal(t, r == 1, m.Placed)
		require.Equal(t, r == 1, places[r][0] == 5)
		in.Advance(n)
		_, more := in.Look()
		require.False(t, more, "one transfer, one message")
	}
}

// Once a peer has given the call up, nothing more is placed in its memory.
func TestNothingIsPlacedAfterAFailure(t *testing.T) {
	const n = 256
	ms := pooled(t, 3)
	e, l := placing(t, ms, n)
	places := [3][]byte{nil, make([]byte, n), make([]byte, n)}
	l.answer(1, places[1])
	l.answer(2, places[2])
	arrive(t, ms, n/2)
	_, err := e.advance(l)
	require.NoError(t, err)
	ms[2].Fail(&link.Notice{Cause: link.CauseGaveUp, From: 2, Culprit: 2, Text: "enough"})
	arrive(t, ms, n/2)
	_, err = e.advance(l)
	var gone *Gone
	require.ErrorAs(t, err, &gone)
	for _, place := range places[1:] {
		require.Equal(t, slices.Repeat([]byte{5}, n/2), place[:n/2])
		require.Equal(t, make([]byte, n/2), place[n/2:])
	}
}

// A run that has read what a peer lent fails if the peer's has: its caller may have changed the memory already.
func TestLentAndTakenBack(t *testing.T) {
	const n = 4096
	ms, devs := meshesOf(t, 2, link.Config{Geometry: link.Geometry{Lanes: 1, Slots: 4, SlotBytes: 128}})
	shown(t, ms[0], devs[1], n)

	call := link.Call{FP: 7}
	p, err := Transfer(1, false).Plan(ms[0], Layout{Elem: 1, Out: []int{n}}, 0)
	require.NoError(t, err)
	e := New(ms[0], Options{LendMin: n, Wait: Wait{Yield: func() {}}})
	for _, fails := range []bool{false, true} {
		require.True(t, ms[1].Peer(0).Sender(0).(link.Lender).Lend(link.Place{Window: 1}, link.Place{}, n, &call))
		if fails {
			ms[1].Fail(&link.Notice{Cause: link.CauseGaveUp, From: 1, Culprit: 1, Text: "enough"})
		}
		err = e.Run(context.Background(), 0, []*Job{{Plan: p, Args: Args{Out: make([]byte, n), Call: call}}})
		if !fails {
			require.NoError(t, err)
			continue
		}
		var gone *Gone
		require.ErrorAs(t, err, &gone)
	}
}

// shown gives rank 1 a tensor of n bytes that rank 0 can read.
func shown(t *testing.T, m *link.Mesh, dev rdma.Device, n int) {
	region, err := dev.Alloc(n, "tensor")
	require.NoError(t, err)
	mapped, err := m.Peer(1).MapWindow(t.Context(), region.Remote())
	require.NoError(t, err)
	m.Peer(1).SetWindow(1, nil, region.Remote(), mapped)
}

// What a peer lent is not sent on after it has failed, neither through a slot nor through a pool: who gets it read nothing
// that was lent, and would take it for good.
func TestLentIsNotSentOnAfterAFailure(t *testing.T) {
	for name, g := range map[string]link.Geometry{
		"slots": {Lanes: 1, Slots: 4, SlotBytes: 4096},
		"pool":  {Lanes: 1, Slots: 4, SlotBytes: 4096, PoolLanes: 1, PoolBytes: 4096},
	} {
		for _, n := range []int{64, 4096} { // the former as short as goes in one step
			for _, fails := range []bool{false, true} {
				ms, devs := meshesOf(t, 4, link.Config{Geometry: g})
				shown(t, ms[0], devs[1], n)
				p := planned(t, ms[0], n, "allreduce rank 0 of 4 root 0 in 1 out 1 ahead 0\nlane\nrecv out[0] from 1 final\nsend out[0] to 2\nsend out[0] to 3")
				e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}, Spins: 9}})
				require.True(t, ms[1].Peer(0).Sender(0).(link.Lender).Lend(link.Place{Window: 1}, link.Place{}, n, &link.Call{FP: 7}))
				if fails {
					ms[1].Fail(&link.Notice{Cause: link.CauseGaveUp, From: 1, Culprit: 1, Text: "enough"})
				}
				b := make([]byte, n)
				err := e.Run(t.Context(), 0, []*Job{{Plan: p, Args: Args{In: b, Out: b, Call: link.Call{FP: 7}}}})
				require.Equal(t, fails, err != nil, "%s of %d: %v", name, n, err)
				for r := 2; r <= 3; r++ {
					_, sent := ms[r].Peer(0).Receiver(0).Look()
					require.Equal(t, !fails, sent, "%s of %d to rank %d", name, n, r)
				}
			}
		}
	}
}

// Who has not released what was lent is named as long as a run waits for nothing else.
func TestNamesWhoKeepsALoan(t *testing.T) {
	const n = 4096
	ms, _ := meshesOf(t, 2, link.Config{Geometry: link.Geometry{Lanes: 1, Slots: 4, SlotBytes: 128}})
	p, err := Transfer(1, true).Plan(ms[0], Layout{Elem: 1, In: []int{n}}, 0)
	require.NoError(t, err)
	e := New(ms[0], Options{LendMin: n, Wait: Wait{Yield: func() {}}})
	job := Job{Plan: p, Args: Args{In: make([]byte, n), InPlace: link.Place{Window: 1}, Call: link.Call{FP: 7}}}
	require.ErrorIs(t, e.Run(t.Context(), 1, []*Job{&job}), context.DeadlineExceeded)
	require.Equal(t, []int{1}, e.WaitsFor(nil))
	require.Equal(t, []LaneAt{{At: At{Job: &job, Step: 1, Steps: 1, Doing: "release of what was lent"}, WaitsFor: []int{1}}}, e.Lanes())
}
