package verify_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// mutants makes every schedule that differs from s in one place, by the kind of difference.
func mutants(s *schedule.Schedule) map[string][]schedule.Schedule {
	all := make(map[string][]schedule.Schedule)
	add := func(kind string, change func(m *schedule.Schedule)) {
		m := *s
		m.Lanes = make([]schedule.Lane, len(s.Lanes))
		for l := range s.Lanes {
			m.Lanes[l] = slices.Clone(s.Lanes[l])
		}
		change(&m)
		all[kind] = append(all[kind], m)
	}
	for l := range s.Lanes {
		for i := range s.Lanes[l] {
			st := s.Lanes[l][i]
			at := func(m *schedule.Schedule) *schedule.Step { return &m.Lanes[l][i] }
			add("drop", func(m *schedule.Schedule) { m.Lanes[l] = slices.Delete(m.Lanes[l], i, i+1) })
			add("duplicate", func(m *schedule.Schedule) { m.Lanes[l] = slices.Insert(m.Lanes[l], i, st) })
			if i > 0 {
				add("swap", func(m *schedule.Schedule) { m.Lanes[l][i], m.Lanes[l][i-1] = m.Lanes[l][i-1], m.Lanes[l][i] })
			}
			if st.Op.Receives() || st.Op == schedule.Send {
				add("retarget peer", func(m *schedule.Schedule) { at(m).Peer = (st.Peer + 1) % s.Size })
			}
			if st.Src.Count > 0 {
				add("shift src", func(m *schedule.Schedule) { at(m).Src.First = (st.Src.First + 1) % chunks(s, st.Src.Buf) })
			}
			if st.Src.Buf == schedule.Out || st.Src.Buf == schedule.In && s.Out == s.In {
				add("src of in and out", func(m *schedule.Schedule) { at(m).Src.Buf = schedule.In + schedule.Out - st.Src.Buf })
			}
			if st.Dst.Count > 0 {
				add("shift dst", func(m *schedule.Schedule) { at(m).Dst.First = (st.Dst.First + 1) % chunks(s, st.Dst.Buf) })
				add("final", func(m *schedule.Schedule) { at(m).Final = !st.Final })
			}
			if st.Op == schedule.RecvReduce {
				add("left", func(m *schedule.Schedule) { at(m).Left = !st.Left })
				add("forget src", func(m *schedule.Schedule) {
					*at(m) = schedule.Step{Op: schedule.Recv, Peer: st.Peer, Dst: st.Dst, Final: st.Final}
				})
			}
		}
	}
	return all
}

func chunks(s *schedule.Schedule, b schedule.Buf) int {
	switch b {
	case schedule.In:
		return s.In
	case schedule.Out:
		return s.Out
	}
	return len(s.Scratch)
}

// TestMutation spoils correct schedules in every place, one place at a time. The verifier must
// refuse every mutant that computes something else; those that it lets pass are evaluated on
// numbers and must be right. The golden file has the count, so that a verifier that gets weaker
// shows. Mutants equal to the original are not counted.
func TestMutation(t *testing.T) {
	var report strings.Builder
	for _, info := range ring.Algorithms() {
		shape := schedule.Shape{}
		if info.Collective.Rooted() {
			shape = schedule.Shape{Root: 2, Pieces: 2}
		}
		all := verifytest.Schedules(t, info.Make, 4, shape)
		tried, passed := make(map[string]int), make(map[string]int)
		for r := range all {
			for kind, list := range mutants(&all[r]) {
				for _, m := range list {
					if m.String() == all[r].String() {
						continue
					}
					with := slices.Clone(all)
					with[r] = m
					tried[kind]++
					if _, err := verify.All(with, verify.Options{}); err == nil {
						passed[kind]++
						requireRight(t, with)
					}
				}
			}
		}
		kinds := make([]string, 0, len(tried))
		for kind := range tried {
			kinds = append(kinds, kind)
		}
		slices.Sort(kinds)
		fmt.Fprintln(&report, info.Name)
		for _, kind := range kinds {
			fmt.Fprintf(&report, "  %-18s %3d mutants, %2d harmless\n", kind, tried[kind], passed[kind])
		}
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/mutation.golden", []byte(report.String()), 0o644))
	}
	want, err := os.ReadFile("testdata/mutation.golden")
	require.NoError(t, err)
	require.Equal(t, string(want), report.String())
}

// requireRight evaluates schedules on numbers of which no two different sums are equal.
func requireRight(t *testing.T, all []schedule.Schedule) {
	t.Helper()
	input := func(rank, chunk int) int { return 1 << (8*rank + chunk) }
	out, err := verify.Evaluate(all, verify.Arithmetic[int]{Input: input, Reduce: func(l, r int) int { return l + r }})
	require.NoError(t, err)
	n, h := len(all), &all[0]
	p := h.PerBlock()
	for r := range all {
		for i, got := range out[r] {
			want := 0
			for from := range n {
				switch {
				case h.Collective == schedule.AllReduce || h.Collective == schedule.Reduce:
					want += input(from, i)
				case h.Collective == schedule.ReduceScatter:
					want += input(from, r*p+i)
				case h.Collective == schedule.Broadcast && from == h.Root:
					want += input(from, i)
				case h.Collective == schedule.AllGather && from == i/p:
					want += input(from, i%p)
				}
			}
			require.Equal(t, want, got, "rank %d out[%d] of\n%s", r, i, all[r])
		}
	}
}

// TestPromises spoils what a schedule declares.
func TestPromises(t *testing.T) {
	for _, info := range ring.Algorithms() {
		all := verifytest.Schedules(t, info.Make, 4, schedule.Shape{Pieces: 2})
		rep, err := verify.All(all, verify.Options{})
		require.NoError(t, err)
		for _, tc := range []struct {
			name  string
			spoil func(s *schedule.Schedule)
			wrong bool
		}{
			{"early", func(s *schedule.Schedule) { s.Early = true }, !rep.Early},
			{"lazy", func(s *schedule.Schedule) { s.Lazy = true }, !rep.Lazy},
			{"ahead", func(s *schedule.Schedule) { s.Ahead = 0 }, all[0].Ahead > 0},
			{"disjoint", func(s *schedule.Schedule) { s.Disjoint = true }, false},
		} {
			with := slices.Clone(all)
			for i := range with {
				tc.spoil(&with[i])
			}
			_, err := verify.All(with, verify.Options{})
			require.Equal(t, tc.wrong, err != nil, "%s %s: %v", info.Name, tc.name, err)
		}
	}
}
