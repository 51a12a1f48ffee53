package schedule_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// everything is a schedule with every kind of step, span, flag and scratch.
func everything() schedule.Schedule {
	at, span := schedule.At, func(b schedule.Buf, first, count int) schedule.Span {
		return schedule.Span{Buf: b, First: first, Count: count}
	}
	return schedule.Schedule{
		Collective: schedule.Reduce, Rank: 1, Size: 3, Root: 1, In: 4, Out: 4,
		Scratch: []schedule.Chunk{{Buf: schedule.In, Index: 0}, {Buf: schedule.Out, Index: 1}},
		Lanes: []schedule.Lane{
			{
				{Op: schedule.Send, Peer: 2, Src: span(schedule.In, 0, 2)},
				{Op: schedule.Recv, Peer: 0, Dst: span(schedule.Out, 2, 2)},
				{Op: schedule.RecvReduce, Peer: 2, Src: at(schedule.Out, 2), Dst: at(schedule.Out, 2)},
				{Op: schedule.RecvReduce, Peer: 2, Src: at(schedule.In, 3), Dst: at(schedule.Out, 3), Left: true, Final: true},
			},
			{
				{Op: schedule.Copy, Src: span(schedule.In, 0, 2), Dst: span(schedule.Scratch, 0, 2)},
				{Op: schedule.Combine, Src: at(schedule.In, 0), Dst: at(schedule.Scratch, 0), After: schedule.After{Lane: 0, Steps: 2}},
				{Op: schedule.Combine, Src: at(schedule.In, 1), Dst: at(schedule.Scratch, 1), Left: true},
				{Op: schedule.Copy, Src: at(schedule.Scratch, 0), Dst: at(schedule.Out, 0), Final: true, After: schedule.After{Lane: 0, Steps: 4}},
			},
		},
		Ahead: 2, Early: true, Lazy: true, Disjoint: true,
	}
}

func TestTextForm(t *testing.T) {
	s := everything()
	require.NoError(t, s.Validate())
	if *update {
		require.NoError(t, os.WriteFile("testdata/everything.golden", []byte(s.String()), 0o644))
	}
	want, err := os.ReadFile("testdata/everything.golden")
	require.NoError(t, err)
	require.Equal(t, string(want), s.String())
	back, err := schedule.Parse(s.String())
	require.NoError(t, err)
	require.Equal(t, s, back)
	require.Equal(t, s.Digest(), back.Digest())
}

// TestDigest pins a number: digests are compared between machines and versions.
func TestDigest(t *testing.T) {
	s := everything()
	require.Equal(t, uint64(0x46a0f235c42a7d78), s.Digest())
	d := s.Digest()
	s.Lanes[0][0].Peer = 0
	require.NotEqual(t, d, s.Digest())
}

func TestTextFormOfRings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		info := rapid.SampledFrom(ring.Algorithms()).Draw(t, "algorithm")
		size := rapid.IntRange(1, 20).Draw(t, "size")
		shape := schedule.Shape{Pieces: rapid.IntRange(0, 4).Draw(t, "pieces")}
		if info.Collective.Rooted() {
			shape.Root = rapid.IntRange(0, size-1).Draw(t, "root")
		}
		s, err := info.Make(rapid.IntRange(0, size-1).Draw(t, "rank"), size, shape)
		require.NoError(t, err)
		s = schedule.Channels(s, rapid.IntRange(1, 3).Draw(t, "channels"))
		back, err := schedule.Parse(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	})
}

func TestParseErrors(t *testing.T) {
	const head = "allreduce rank 0 of 2 root 0 in 2 out 2 ahead 1\n"
	for _, tc := range []struct{ text, want string }{
		{"", "empty text"},
		{"# only a remark", "empty text"},
		{"barrier rank 0", `line 1: schedule: no collective is called "barrier"`},
		{"allreduce rank x", `line 1: "x" is no number`},
		{"allreduce rank 0 of 2 root 0 in 2 out 2", `line 1: "ahead" is missing`},
		{"allreduce rank 0 of 2 root 0 in 2 out 2 ahead 1 soon", `line 1: "soon" is too much`},
		{"allreduce rank -1", `"-1" is no number`},
		{"allreduce rank 99999999999", `"99999999999" is no number`},
		{head + "send in[0] to 1", "line 2: a step before the first lane"},
		{head + "lane\nscratch in[0]", "line 3: scratch belongs on the second line"},
		{head + "scratch in[0:2]", "line 2: in[0:2] is not one chunk"},
		{head + "lane\n\n  move in[0] to 1", `line 4: "move" is no step`},
		{head + "lane\n  send in[0] from 1", `line 3: "to" is missing`},
		{head + "lane\n  send in[0", `"in[0" is no span`},
		{head + "lane\n  send user[0] to 1", `"user[0]" is no span`},
		{head + "lane\n  send in[0] to 1 after 0", "after wants lane:steps"},
		{head + "lane\n  combine out[0] = in[0] + in[1]", "neither operand is out[0]"},
		{head + "lane\n  recv-reduce out[0] = in[0] +", `"from" is missing`},
		{head + "lane\n  copy", "something is missing at the end"},
	} {
		_, err := schedule.Parse(tc.text)
		require.ErrorContains(t, err, tc.want, "%q", tc.text)
	}
}

// FuzzParse: whatever Parse takes, String writes in a form that Parse takes for the same, and
// neither Parse nor Validate falls over any text.
func FuzzParse(f *testing.F) {
	s := everything()
	f.Add(s.String())
	f.Add("allreduce rank 0 of 2 root 0 in 2 out 2 ahead 1 lazy\nscratch\nlane\nlane\ncombine out[0:0] = out[0:0] + out[0:0]\n")
	f.Add("scan rank 3 of 2 root 9 in 0 out 0 ahead 0\nlane\nsend in[2147483647:1] to 7 after 9:9\n")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := schedule.Parse(text)
		if err != nil {
			return
		}
		b, err := schedule.Parse(a.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, a)
		}
		if a.String() != b.String() {
			t.Fatalf("%s\n%s", a, b)
		}
		if b.Validate() == nil {
			schedule.Fuse(&b)
			if b.In+b.Out < 1000 {
				c := schedule.Channels(b, 3)
				if err := c.Validate(); err != nil {
					t.Fatalf("%v\n%s", err, b)
				}
			}
		}
	})
}
