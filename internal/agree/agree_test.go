package agree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// run delivers messages in order until none is left. Messages to ranks in lost vanish.
func run(ms []*Machine, lost ...int) {
	for busy := true; busy; {
		busy = false
		for _, m := range ms {
			for _, msg := range m.Take() {
				busy = true
				gone := false
				for _, r := range lost {
					gone = gone || r == msg.To || r == msg.From
				}
				if !gone {
					ms[msg.To].Step(msg)
				}
			}
		}
	}
}

func group(n int) []*Machine {
	ms := make([]*Machine, n)
	for r := range ms {
		ms[r] = New(r, n)
	}
	return ms
}

// Two uncertain suspicions of four ranks leave no majority; certain ones do, and so does doubt not.
func TestQuorum(t *testing.T) {
	for _, tc := range []struct {
		certain, doubt, decides bool
	}{{true, false, true}, {false, false, false}, {true, true, false}} {
		ms := group(4)
		for _, r := range []int{1, 3} {
			if tc.doubt {
				ms[r].Doubt()
			}
			ms[r].Suspect(0, true)
			ms[r].Suspect(2, tc.certain)
			ms[r].Start(1, 7)
		}
		run(ms, 0, 2)
		v, ok := ms[1].Decision(1)
		require.Equal(t, tc.decides, ok, "%+v", tc)
		require.Equal(t, !tc.decides, ms[1].Stuck())
		if ok {
			require.Equal(t, []int{0, 2}, v.Failed.Ranks())
			w, _ := ms[3].Decision(1)
			require.Equal(t, v, w)
			continue
		}
		ms[1].Abandon()
		run(ms, 0, 2)
		require.True(t, ms[3].Abandoned())
	}
}

// Operations that differ are found out on all ranks, and flags are the AND.
func TestOutcome(t *testing.T) {
	ms := group(3)
	for r, m := range ms {
		m.Start(uint8(r/2), 0b111^1<<r)
	}
	run(ms)
	for _, m := range ms {
		v, ok := m.Decision(1)
		require.True(t, ok)
		require.Equal(t, uint8(Mixed), v.Op)
		require.Zero(t, v.Flags)
		require.Empty(t, v.Failed.Ranks())
	}
}

// A member whose contribution has no flag left is heard of by all, before the round ends.
func TestLeast(t *testing.T) {
	ms := group(4)
	for _, m := range ms {
		m.Start(0, 1)
	}
	run(ms)
	ms[2].Start(0, 0)
	run(ms)
	for r, m := range ms {
		require.Zero(t, m.Least(), "rank %d", r)
		require.EqualValues(t, 2, m.Round())
	}
}
