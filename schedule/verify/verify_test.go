package verify_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/internal/machine"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

// parse makes schedules from the text forms of the ranks, separated by blank lines. The first line
// of each is completed with rank, size and the properties in head.
func parse(t *testing.T, collective, head, text string) []schedule.Schedule {
	t.Helper()
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	all := make([]schedule.Schedule, len(parts))
	for r, part := range parts {
		var err error
		all[r], err = schedule.Parse(fmt.Sprintf("%s rank %d of %d root 0 %s\n%s", collective, r, len(parts), head, part))
		require.NoError(t, err)
	}
	return all
}

// TestErrors: each case is a wrong set of schedules, and what the verifier says about it.
func TestErrors(t *testing.T) {
	for _, tc := range []struct{ name, collective, head, text, want string }{
		{"nobody receives", "allreduce", "in 1 out 1 ahead 1", `
lane
send in[0] to 1

lane`, "rank 0 lane 0 step 0 (send in[0] to 1): no receive at rank 1"},
		{"nobody sends", "allreduce", "in 1 out 1 ahead 1", `
lane
recv out[0] from 1

lane`, "rank 0 lane 0 step 0 (recv out[0] from 1): no send at rank 1"},
		{"another lane", "allreduce", "in 1 out 1 ahead 1", `
lane
recv out[0] from 1

lane
lane
send in[0] to 0`, "rank 0 lane 0 step 0 (recv out[0] from 1): no send at rank 1"},
		{"counts", "allreduce", "in 2 out 2 ahead 1", `
lane
send in[0:2] to 1

lane
recv out[0] from 0
recv out[1] from 0`, "rank 0 lane 0 step 0 (send in[0:2] to 1) carries 2 chunks to rank 1 lane 0 step 0 (recv out[0] from 0), which takes 1"},
		{"sizes", "allreduce", "in 2 out 2 ahead 1", `
lane
send in[0] to 1

lane
recv out[1] from 0`, "rank 0 lane 0 step 0 (send in[0] to 1) carries a chunk 0 of a block to rank 1 lane 0 step 0 (recv out[1] from 0), which takes a chunk 1: their sizes may differ"},
		{"missing", "allreduce", "in 1 out 1 ahead 1", `
lane
send in[0] to 1
recv-reduce out[0] = in[0] + from 1 final

lane
send in[0] to 0
recv out[0] from 0`, "window 0 rank 1 out[0]: the contribution of rank 1 is missing"},
		{"twice", "allreduce", "in 1 out 1 ahead 1", `
lane
send in[0] to 1
recv-reduce out[0] = in[0] + from 1 final

lane
send in[0] to 0
recv-reduce out[0] = in[0] + from 0
combine out[0] = out[0] + in[0] final`, "window 0 rank 1 lane 0 step 2 (combine out[0] = out[0] + in[0] final): takes the contribution of rank 1 twice"},
		{"unfinished", "allreduce", "in 1 out 1 ahead 1", `
lane
send in[0] to 1
recv-reduce out[0] = in[0] + from 1 final

lane
send in[0] to 0
recv-reduce out[0] = from 0 + in[0]`, "window 0 rank 1 out[0]: is complete, but no step with Final finished it"},
		{"finished too early", "allreduce", "in 1 out 1 ahead 1", `
lane
copy out[0] = in[0] final
send in[0] to 1

lane
recv out[0] from 0`, "window 0 rank 0 lane 0 step 0 (copy out[0] = in[0] final): finishes an incomplete result: the contribution of rank 1 is missing"},
		{"finished twice", "reduce", "in 1 out 1 ahead 0", `
lane
copy scratch[0] = in[0] final
copy out[0] = scratch[0] final`, "window 0 rank 0 lane 0 step 1 (copy out[0] = scratch[0] final): finishes a result that is already finished"},
		{"not the same bits", "allreduce", "in 1 out 1 ahead 1", `
lane
send in[0] to 1
recv-reduce out[0] = in[0] + from 1 final

lane
send in[0] to 0
recv-reduce out[0] = in[0] + from 0 final`, "window 0 rank 1 out[0]: not the same expression as at rank 0: the bits may differ"},
		{"wrong chunk", "allgather", "in 1 out 2 ahead 1", `
lane
send in[0] to 1
copy out[0] = in[0]
recv out[1] from 1

lane
send in[0] to 0
copy out[0] = in[0]
recv out[1] from 0`, "window 0 rank 1 out[0]: the contribution of rank 0 is missing, that of rank 1 should not be there"},
		{"never written", "broadcast", "in 1 out 1 ahead 0", `
lane`, "window 0 rank 0 out[0]: was never written"},
		{"read too early", "allreduce", "in 1 out 1 ahead 0", `
lane
send out[0] to 1
copy out[0] = in[0]

lane
recv out[0] from 0`, "window 0 rank 0 lane 0 step 0 (send out[0] to 1): reads out[0]: nothing was written there"},
		{"waits for each other", "allgather", "in 1 out 2 ahead 1", `
lane
copy out[0] = in[0]
recv out[1] from 1
send in[0] to 1

lane
copy out[1] = in[0]
recv out[0] from 0
send in[0] to 0`, "deadlock with 0 slots, 1 segments a chunk, fused: window 0 rank 0 lane 0 step 1 (recv out[1] from 1) waits for data; window 0 rank 1 lane 0 step 1 (recv out[0] from 0) waits for data"},
		{"ahead", "allgather", "in 1 out 2 ahead 0", `
lane
send in[0] to 1
recv out[1] from 1
copy out[0] = in[0]

lane
send in[0] to 0
recv out[0] from 0
copy out[1] = in[0]`, "deadlock with 1 slots, 3 segments a chunk, step by step: rank 0 lane 0 step 0 (send in[0] to 1) waits for a slot; rank 1 lane 0 step 0 (send in[0] to 0) waits for a slot"},
		{"in place", "allgather", "in 1 out 2 ahead 1", `
lane
send in[0] to 1
recv out[1] from 1
copy out[0] = in[0]

lane
send in[0] to 0
copy out[1] = in[0]
recv out[0] from 0
copy out[1] = out[0]
copy out[1] = in[0]`, "in place: window 0 rank 1 lane 0 step 4 (copy out[1] = in[0]): reads in[0]: in place, the chunk of in was overwritten before"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := tc.text
			if strings.Contains(text, "scratch") {
				text = "scratch in[0]" + text
			}
			_, err := verify.All(parse(t, tc.collective, tc.head, text), verify.Options{})
			require.EqualError(t, err, "verify: "+tc.want)
		})
	}
}

// TestOrder: what happens at the same time, and what Early and Lazy do not survive.
func TestOrder(t *testing.T) {
	for _, tc := range []struct{ name, head, text, want string }{
		{"scratch over two windows", "in 1 out 2 ahead 1", `
lane
send in[0] to 1
copy out[0] = in[0]
recv out[1] from 1

scratch in[0]
lane
send in[0] to 0
recv scratch[0] from 0
lane
copy out[0] = scratch[0] after 0:2
copy out[1] = in[0]`, "race: window 0 rank 1 lane 1 step 0 (copy out[0] = scratch[0] after 0:2) reads a chunk that lane 0 may be writing"},
		{"two writers", "in 1 out 2 ahead 1", `
lane
send in[0] to 1
copy out[0] = in[0]
recv out[1] from 1

lane
send in[0] to 0
recv out[0] from 0
lane
copy out[1] = in[0]
copy out[0] = out[1]`, "race: window 0 rank 1 lane 1 step 1 (copy out[0] = out[1]) writes a chunk that lane 0 may be writing"},
		{"not early", "in 1 out 2 ahead 1 early", `
lane
copy out[0] = in[0]
send in[0] to 1
recv out[1] from 1

lane
send in[0] to 0
copy out[1] = in[0]
copy out[0] = out[1]
recv out[0] from 0`, "not early: window 0 rank 1 lane 0 step 3 (recv out[0] from 0): this rank may still be busy with that chunk when the peer has sent"},
		{"not lazy", "in 1 out 2 ahead 1 lazy", `
lane
copy out[0] = in[0]
send in[0] to 1
recv out[1] from 1

scratch in[0]
lane
copy scratch[0] = in[0]
send scratch[0] to 0
copy out[1] = in[0]
copy scratch[0] = out[1]
recv out[0] from 0`, "not lazy: rank 1 may overwrite what it lends to window 0 rank 0 lane 0 step 2 (recv out[1] from 1)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := verify.All(parse(t, "allgather", tc.head, tc.text), verify.Options{})
			require.EqualError(t, err, "verify: "+tc.want)
		})
	}
}

// TestAfter: a lane may pass on what another lane has received, once it has.
func TestAfter(t *testing.T) {
	const text = "lane\nsend in[0] to 1\ncopy out[0] = in[0]\n\nlane\nrecv out[0] from 0\nlane\nsend out[0] to 2 after 0:1\n\nlane\nlane\nrecv out[0] from 1"
	all := parse(t, "broadcast", "in 1 out 1 ahead 0 early", text)
	all[1].In, all[2].In = 0, 0
	rep, err := verify.All(all, verify.Options{})
	require.NoError(t, err)
	require.Equal(t, 2, rep.Steps)
	require.Equal(t, 2, rep.Lanes)
	all[1].Lanes[1][0].After = schedule.After{}
	_, err = verify.All(all, verify.Options{})
	require.EqualError(t, err, "verify: race: window 0 rank 1 lane 1 step 0 (send out[0] to 2) reads a chunk that lane 0 may be writing")
}

// TestDeadlockBound: a ring in which all send first stops exactly when a chunk has more segments
// than a link has slots, and one segment earlier when its steps are streamed.
func TestDeadlockBound(t *testing.T) {
	var dead *machine.Deadlock
	for slots := 1; slots <= 6; slots++ {
		for segments := 1; segments <= 8; segments++ {
			all := verifytest.Schedules(t, ring.AllReduce, 5, schedule.Shape{})
			require.LessOrEqual(t, all[0].MaxSegments(slots), slots-1)
			p, err := machine.New(5, func(r int) (schedule.Schedule, error) { return all[r], nil })
			require.NoError(t, err)
			plain := machine.Run(p, machine.Config{Slots: slots, Segments: segments, Windows: 3})
			fused := machine.Run(p, machine.Config{Slots: slots, Segments: segments, Windows: 3, Fused: true})
			require.Equal(t, segments > slots, errors.As(plain, &dead), "%d slots, %d segments: %v", slots, segments, plain)
			require.Equal(t, segments >= slots, errors.As(fused, &dead), "%d slots, %d segments: %v", slots, segments, fused)
			require.Equal(t, segments <= all[0].MaxSegments(slots), fused == nil)
		}
	}
}

func TestAhead(t *testing.T) {
	for _, tc := range []struct {
		make schedule.Algorithm
		want int
	}{{ring.AllReduce, 1}, {ring.ReduceScatter, 1}, {ring.AllGather, 1}, {ring.Broadcast, 0}, {ring.Reduce, 0}} {
		for _, size := range []int{2, 3, 7} {
			got, err := verify.Ahead(verifytest.Schedules(t, tc.make, size, schedule.Shape{Pieces: 3}))
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		}
	}
	// Six Sends of two chunks before the first receive need six and six.
	text := "lane\n" + strings.Repeat("send in[0] to %[1]d\n", 6) + strings.Repeat("recv out[%[1]d] from %[1]d\n", 6) + "copy out[%[2]d] = in[0]"
	all := parse(t, "allgather", "in 1 out 2 ahead 0", fmt.Sprintf(text, 1, 0)+"\n\n"+fmt.Sprintf(text, 0, 1))
	got, err := verify.Ahead(all)
	require.NoError(t, err)
	require.Equal(t, 6, got)
	// And those that never end on any links.
	all = parse(t, "allgather", "in 1 out 2 ahead 0", "lane\nrecv out[1] from 1\nsend in[0] to 1\n\nlane\nrecv out[0] from 0\nsend in[0] to 0")
	_, err = verify.Ahead(all)
	require.ErrorContains(t, err, "deadlock with 0 slots")
}

// TestMismatch: schedules that do not belong together.
func TestMismatch(t *testing.T) {
	spoil := func(f func(s *schedule.Schedule)) error {
		all := verifytest.Schedules(t, ring.Broadcast, 3, schedule.Shape{})
		f(&all[2])
		_, err := verify.All(all, verify.Options{})
		return err
	}
	require.EqualError(t, spoil(func(s *schedule.Schedule) { s.Lazy = false }),
		"verify: rank 2: ahead 0 early true lazy false disjoint false, but rank 0 has 0 true true false")
	require.EqualError(t, spoil(func(s *schedule.Schedule) { s.Rank, s.Lanes = 1, nil }), "verify: rank 2 of 3: the schedule is for rank 1 of 3")
	require.EqualError(t, spoil(func(s *schedule.Schedule) { s.Root = 1 }), "verify: rank 2: broadcast root 1, but rank 0 has broadcast root 0")
	require.ErrorContains(t, spoil(func(s *schedule.Schedule) { s.Out = 2 }), "verify: rank 2: 2 chunks a block, but rank 0 has 1")
	_, err := verify.All(nil, verify.Options{})
	require.EqualError(t, err, "verify: 0 ranks")
	_, err = verify.Check(ring.Broadcast, schedule.Reduce, 3, schedule.Shape{}, verify.Options{})
	require.EqualError(t, err, "verify: rank 0: the schedule is for broadcast, not reduce")
	_, err = verify.Check(ring.Broadcast, schedule.Broadcast, 3, schedule.Shape{Root: 3}, verify.Options{})
	require.EqualError(t, err, "verify: rank 0: ring: broadcast: root 3 outside 3 ranks")
}

// TestEvaluate: strings show the operands and their order.
func TestEvaluate(t *testing.T) {
	all := verifytest.Schedules(t, ring.AllReduce, 3, schedule.Shape{})
	out, err := verify.Evaluate(all, verify.Arithmetic[string]{
		Input:  func(rank, chunk int) string { return fmt.Sprintf("%c%d", 'a'+rank, chunk) },
		Reduce: func(l, r string) string { return "(" + l + r + ")" },
		Finish: func(v string) string { return v + "!" },
	})
	require.NoError(t, err)
	want := []string{"((a0b0)c0)!", "((b1c1)a1)!", "((c2a2)b2)!"}
	require.Equal(t, [][]string{want, want, want}, out)
}

// TestManyRanks goes beyond what a bit set can hold.
func TestManyRanks(t *testing.T) {
	rep, err := verify.Check(ring.AllReduce, schedule.AllReduce, 200, schedule.Shape{}, verify.Options{})
	require.NoError(t, err)
	require.Equal(t, 398, rep.Steps)
	require.Equal(t, 199, rep.Depth)
	all := verifytest.Schedules(t, ring.ReduceScatter, 200, schedule.Shape{})
	last := &all[100].Lanes[0][len(all[100].Lanes[0])-1]
	last.Op, last.Src = schedule.Recv, schedule.Span{}
	last.Left, last.Final = false, false
	_, err = verify.All(all, verify.Options{SkipOrder: true})
	require.EqualError(t, err, "verify: window 0 rank 100 out[0]: some contributions are missing or come twice")
}

// TestChannels verifies channels as they run, all at once, which Options.Channels does not.
func TestChannels(t *testing.T) {
	for _, info := range ring.Algorithms() {
		for size := 1; size <= 5; size++ {
			for n := 2; n <= 4; n++ {
				all := verifytest.Schedules(t, info.Make, size, schedule.Shape{Pieces: 2})
				for r := range all {
					all[r] = schedule.Channels(all[r], n)
				}
				_, err := verify.All(all, verify.Options{})
				require.NoError(t, err, "%s, %d ranks, %d channels", info.Name, size, n)
			}
		}
	}
}
