package executor

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/schedule"
	"github.com/stretchr/testify/require"
)

// A small plan of one lane that has to wait goes on where it stopped: what it has sent is not sent again. It may fit
// into headers, or into slots.
func TestSmallPlanGoesOnWhereItStopped(t *testing.T) {
	for _, n := range []int{8, link.InlineBytes + 1, link.BriefBytes, shortMost} {
		for _, spins := range []int{0, 100} { // 0: ranks outnumber cores
			testGoingOn(t, n, spins)
		}
	}
}

func testGoingOn(t *testing.T, n, spins int) {
	bell := &hookedBell{Bell: link.NewBell()}
	ms := meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: shortMost}, bell)
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}, Spins: spins}})
	prog := &Program{Schedule: schedule.Schedule{In: 1, Out: 1, Lanes: make([]schedule.Lane, 1)}, lanes: [][]group{{
		{Group: schedule.Group{End: 1}, operands: []operand{{span: schedule.At(schedule.In, 0)}}, sends: []int{1}},
		{Group: schedule.Group{End: 2, Dst: schedule.At(schedule.Out, 0)}, operands: []operand{{recv: true, peer: 1}}},
	}}}
	p, err := prog.Plan(ms[0], Layout{Elem: 1, In: []int{n}, Out: []int{n}}, 0)
	require.NoError(t, err)
	require.True(t, e.darts && p.single)
	longer, err := prog.Plan(ms[0], Layout{Elem: 1, In: []int{shortMost + 1}, Out: []int{shortMost + 1}}, 0)
	require.NoError(t, err)
	require.False(t, e.short(&Job{Plan: longer}))
	call := link.Call{FP: 7}
	text := func(b byte) []byte { return bytes.Repeat([]byte{b}, n) }
	for answer := range byte(5) {
		var got []byte
		bell.hook = func() {
			r, s := ms[1].Peer(0).Receiver(0), ms[1].Peer(0).Sender(0)
			m, err := r.Peek(&call)
			require.NoError(t, err)
			got = bytes.Clone(m.Data)
			r.Advance(m.Len)
			m, err = r.Peek(&call)
			require.NoError(t, err)
			require.Nil(t, m)
			b, ok := s.Reserve(n)
			require.True(t, ok)
			s.Commit(copy(b, text('a'+answer)), &call)
		}
		out := make([]byte, n)
		require.NoError(t, e.Run(context.Background(), 0, []*Job{{Plan: p, Args: Args{In: text('q'), Out: out, Call: call}}}))
		require.Equal(t, text('q'), got)
		require.Equal(t, text('a'+answer), out)
	}
	require.Equal(t, 5, bell.sleeps)
}

// Several small jobs begin with a sprint, too. Those that share a link keep their order, and where one has to wait, nothing that
// others have done is done again.
func TestSmallJobsGoOnWhereTheyStopped(t *testing.T) {
	bell := &hookedBell{Bell: link.NewBell()}
	ms := meshes(t, link.Geometry{Lanes: 1, Slots: 4, SlotBytes: 64}, bell)
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}, Spins: 100}})
	out := [2][]byte{make([]byte, 3), make([]byte, 3)}
	var jobs []*Job
	for i, text := range []string{"abc", "def"} {
		send, err := Transfer(1, true).Plan(ms[0], Layout{Elem: 1, In: []int{3}}, 0)
		require.NoError(t, err)
		recv, err := Transfer(1, false).Plan(ms[0], Layout{Elem: 1, Out: []int{3}}, 0)
		require.NoError(t, err)
		jobs = append(jobs, &Job{Plan: send, Args: Args{In: []byte(text), Call: link.Call{FP: uint64(i)}}},
			&Job{Plan: recv, Args: Args{Out: out[i], Call: link.Call{FP: uint64(i)}}})
	}
	jobs[2].After, jobs[3].After = jobs[0], jobs[1]
	slices.Reverse(jobs)
	require.True(t, e.sprints && e.allShort(jobs))
	r, s := ms[1].Peer(0).Receiver(0), ms[1].Peer(0).Sender(0)
	var got []string
	answer := func(i int, text string) {
		b, ok := s.Reserve(3)
		require.True(t, ok)
		s.Commit(copy(b, text), &link.Call{FP: uint64(i)})
	}
	bell.hook = func() {
		bell.hook = func() { answer(1, "xyz") }
		for i := range 2 {
			m, err := r.Peek(&link.Call{FP: uint64(i)})
			require.NoError(t, err)
			got = append(got, string(m.Data))
			r.Advance(m.Len)
		}
		answer(0, "uvw")
	}
	require.NoError(t, e.Run(context.Background(), 0, jobs))
	require.Equal(t, []string{"abc", "def"}, got)
	require.Equal(t, []string{"uvw", "xyz"}, []string{string(out[0]), string(out[1])})
	require.Equal(t, 2, bell.sleeps)
	m, err := r.Peek(&link.Call{FP: 2})
	require.NoError(t, err)
	require.Nil(t, m)
}

// What a peer may be lent is no business of the small plans' short cut: registered memory, from some length on.
func TestNoShortCutForWhatIsLent(t *testing.T) {
	ms := meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: shortMost})
	e := New(ms[0], Options{LendMin: 512, Wait: Wait{Yield: func() {}, Spins: 100}})
	for _, n := range []int{511, 512} {
		p, err := Transfer(1, true).Plan(ms[0], Layout{Elem: 1, In: []int{n}}, 0)
		require.NoError(t, err)
		require.True(t, p.single)
		at := link.Place{Window: 1}
		require.Equal(t, n < 512, e.short(&Job{Plan: p, Args: Args{InPlace: at}}))
		require.Equal(t, n < 512, e.short(&Job{Plan: p, Args: Args{OutPlace: at}}))
		require.NoError(t, e.Run(context.Background(), 0, []*Job{{Plan: p, Args: Args{In: make([]byte, n), Call: link.Call{FP: 7}}}}))
		require.Empty(t, e.lanes, "the engine")
	}
}

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

// Over posted writes a plan of small messages is carried out without the engine's usual pace, too.
func TestSprintOverPostedWrites(t *testing.T) {
	ms, _ := meshesOf(t, 2, link.Config{Geometry: link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, NoMap: true})
	var es [2]*Engine
	for r := range es {
		es[r] = New(ms[r], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}, Spins: 100}})
	}
	in, out := make([]byte, 8), make([]byte, 8)
	for i := range 10 {
		from, to := i%2, 1-i%2
		send, err := Transfer(to, true).Plan(ms[from], Layout{Elem: 1, In: []int{8}}, 0)
		require.NoError(t, err)
		recv, err := Transfer(from, false).Plan(ms[to], Layout{Elem: 1, Out: []int{8}}, 0)
		require.NoError(t, err)
		in[0] = byte(i + 1)
		require.NoError(t, es[from].Run(context.Background(), 0, []*Job{{Plan: send, Args: Args{In: in, Call: link.Call{FP: 7}}}}))
		job := &Job{Plan: recv, Args: Args{Out: out, Call: link.Call{FP: 7}}}
		es[to].start([]*Job{job})
		require.NoError(t, es[to].sprint())
		require.Zero(t, es[to].left)
		require.Equal(t, in, out)
	}
	ms[0].Peer(1).Sender(0).Reserve(8)
	ms[0].Peer(1).Sender(0).Commit(8, &link.Call{FP: 8})
	recv, err := Transfer(0, false).Plan(ms[1], Layout{Elem: 1, Out: []int{8}}, 0)
	require.NoError(t, err)
	var other *link.Mismatch
	require.ErrorAs(t, es[1].Run(context.Background(), 0, []*Job{{Plan: recv, Args: Args{Out: out, Call: link.Call{FP: 7}}}}), &other)
}

// Over posted writes a plan that is single goes on where it stopped, too: by what it waited for, or for room.
func TestDartOverPostedWrites(t *testing.T) {
	ms, _ := meshesOf(t, 2, link.Config{Geometry: link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, NoMap: true})
	late := func() {}
	yield := func() { late(); late = func() {} }
	var es [2]*Engine
	for r := range es {
		es[r] = New(ms[r], Options{LendMin: 1 << 30, Wait: Wait{Yield: yield, Spins: sprintWirePolls + 1}})
		require.True(t, es[r].darts)
	}
	call := link.Call{FP: 7}
	run := func(from, to int, send bool, b []byte) error {
		at, peer, lay := to, from, Layout{Elem: 1, Out: []int{8}}
		args := Args{Out: b, Call: call}
		if send {
			at, peer, lay, args = from, to, Layout{Elem: 1, In: []int{8}}, Args{In: b, Call: call}
		}
		p, err := Transfer(peer, send).Plan(ms[at], lay, 0)
		require.NoError(t, err)
		require.True(t, p.single)
		return es[at].Run(context.Background(), 0, []*Job{{Plan: p, Args: args}})
	}
	in, out := make([]byte, 8), make([]byte, 8)
	for i := range 2 * 64 { // in time, and late
		in[0], in[7] = byte(i), byte(i+1)
		if i%2 == 0 {
			require.NoError(t, run(i/2%2, 1-i/2%2, true, in))
		} else {
			late = func() { require.NoError(t, run(i/2%2, 1-i/2%2, true, in)) }
		}
		require.NoError(t, run(i/2%2, 1-i/2%2, false, out))
		require.Equal(t, in, out)
	}
	for range 64 { // as many as are under way at most
		require.NoError(t, run(0, 1, true, in))
	}
	late = func() { require.NoError(t, run(0, 1, false, out)); require.NoError(t, run(0, 1, false, out)) }
	for range 15 { // credit comes back for several at a time
		require.NoError(t, run(0, 1, false, out))
	}
	require.NoError(t, run(0, 1, true, in))
}
