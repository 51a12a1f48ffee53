package schedule_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/schedule"
)

// TestFuse: each case is a lane of rank 0, and the groups as step ranges; ~ marks Transient.
func TestFuse(t *testing.T) {
	for _, tc := range []struct{ name, lanes, want string }{
		{"receive and pass on", "recv out[0] from 1; send out[0] to 2; send out[0] to 3", "0–2"},
		{"reduce and pass on", "recv-reduce out[0] = in[0] + from 1; send out[0] to 2", "0–1"},
		{"n-ary", "recv-reduce out[0] = in[0] + from 1; recv-reduce out[0] = out[0] + from 2; combine out[0] = out[0] + in[0]; send out[0] to 2", "0–3"},
		{"copy first", "copy out[0] = in[0]; recv-reduce out[0] = from 1 + out[0]", "0–1"},
		{"another span", "recv out[0] from 1; send out[1] to 2", "0 1"},
		{"part of the span", "recv out[0:2] from 1; send out[0] to 2", "0 1"},
		{"send first", "send in[0] to 1; recv out[0] from 1", "0 1"},
		{"sends alone", "send in[0] to 1; send in[0] to 2; send in[1] to 3; recv out[0] from 1", "0–1 2 3"},
		{"sends alone, same peer", "send in[0] to 1; send in[0] to 1", "0 1"},
		{"sends alone that wait", "send in[0] to 1; send in[0] to 2 after 1:1 | copy out[1] = in[1]", "0 1 | 0"},
		{"combine after sends", "send out[0] to 1; send out[0] to 2; combine out[0] = out[0] + in[0]", "0–1 2"},
		{"reduce after send", "recv-reduce out[0] = in[0] + from 1; send out[0] to 2; recv-reduce out[0] = out[0] + from 3; send out[0] to 3", "0–1 2–3"},
		{"combine after send", "recv-reduce out[0] = in[0] + from 1; send out[0] to 2; combine out[0] = out[0] + in[0]", "0–1 2"},
		{"same peer twice in", "recv-reduce out[0] = in[0] + from 1; recv-reduce out[0] = out[0] + from 1", "0 1"},
		{"same peer twice out", "recv out[0] from 1; send out[0] to 2; send out[0] to 2", "0–1 2"},
		{"there and back", "recv out[0] from 1; send out[0] to 1", "0–1"},
		{"receive twice", "recv out[0] from 1; recv out[0] from 2", "0~ 1"},
		{"waits", "recv out[0] from 1; send out[0] to 2 after 1:1 | copy out[1] = in[1]", "0 1 | 0"},
		{"waits first", "recv out[0] from 1 after 1:1; send out[0] to 2 | copy out[1] = in[1]", "0–1 | 0"},
		{"scratch", "recv scratch[0] from 1; send scratch[0] to 2", "0–1~"},
		{"scratch read later", "recv scratch[0] from 1; send scratch[0] to 2; send scratch[0] to 2", "0–1 2"},
		{"scratch of two lanes", "recv scratch[0] from 1 | copy out[0] = scratch[0] after 0:1", "0 | 0"},
		{"overwritten", "recv-reduce out[0] = in[0] + from 1; send out[0] to 2; recv out[0] from 1", "0–1~ 2"},
		{"read before overwritten", "recv-reduce out[0] = in[0] + from 1; send out[0] to 2; copy scratch[0] = out[0]; recv out[0] from 1", "0–1 2~ 3"},
		{"half overwritten", "recv out[0:2] from 1; send out[0:2] to 2; recv out[0] from 1", "0–1 2"},
		{"combined later", "recv out[0] from 1; send out[0] to 1; combine out[0] = out[0] + in[0]", "0–1 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "allreduce rank 0 of 4 root 0 in 2 out 2 ahead 0\nscratch in[0]\nlane\n" +
				strings.NewReplacer(";", "\n", "|", "\nlane\n").Replace(tc.lanes)
			s, err := schedule.Parse(text)
			require.NoError(t, err)
			require.NoError(t, s.Validate())
			var lanes []string
			for l, groups := range schedule.Fuse(&s) {
				next := 0
				var words []string
				for _, g := range groups {
					require.Equal(t, next, g.First, "groups leave no gap")
					next = g.End
					w := fmt.Sprint(g.First)
					if g.End > g.First+1 {
						w += fmt.Sprintf("–%d", g.End-1)
					}
					if g.Transient {
						w += "~"
					}
					words = append(words, w)
				}
				require.Equal(t, len(s.Lanes[l]), next)
				lanes = append(lanes, strings.Join(words, " "))
			}
			require.Equal(t, tc.want, strings.Join(lanes, " | "))
		})
	}
}

// TestChannels: spans over several blocks are cut, and After counts the steps that come of it.
func TestChannels(t *testing.T) {
	s, err := schedule.Parse(`alltoall rank 0 of 3 root 0 in 6 out 6 ahead 2
scratch in[1]
lane
  send in[1:5] to 1
  recv scratch[0] from 2
lane
  copy out[0:2] = in[0:2] after 0:1
  copy out[2:4] = in[2:4] after 0:2
`)
	require.NoError(t, err)
	require.NoError(t, s.Validate())
	c := schedule.Channels(s, 2)
	require.NoError(t, c.Validate())
	require.Equal(t, `alltoall rank 0 of 3 root 0 in 12 out 12 ahead 2
scratch in[1] in[3]
lane
  send in[1] to 1
  send in[4:6] to 1
  send in[8] to 1
  recv scratch[0] from 2
lane
  copy out[0:2] = in[0:2] after 0:3
  copy out[4:6] = in[4:6] after 0:4
lane
  send in[3] to 1
  send in[6:8] to 1
  send in[10] to 1
  recv scratch[1] from 2
lane
  copy out[2:4] = in[2:4] after 2:3
  copy out[6:8] = in[6:8] after 2:4
`, c.String())
	require.Equal(t, s, schedule.Channels(s, 1))
	require.Equal(t, s, schedule.Channels(s, 0))
}
