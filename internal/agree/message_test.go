package agree

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func someMessages() []Message {
	s := func(ranks ...int) Set {
		out := NewSet(70)
		for _, r := range ranks {
			out.Add(r)
		}
		return out
	}
	v := &Outcome{Failed: s(2, 69), Flags: 5, Op: 1}
	return []Message{
		{Kind: Contribute, Round: 1, Suspects: s(2, 69), Certain: s(69), Op: 3, Flags: 1 << 63, Ballot: -1},
		{Kind: Contribute, Round: 9, Suspects: s(), Certain: s(), Ballot: 69, Value: v, Prev: v},
		{Kind: Propose, Round: 2, Suspects: s(0), Certain: s(), Value: v, Prev: v},
		{Kind: Out, Round: 2, Suspects: s(64), Certain: s(64)},
	}
}

func TestMessages(t *testing.T) {
	for _, m := range someMessages() {
		b := m.Append(nil)
		got, err := Parse(b, 70)
		require.NoError(t, err)
		require.Equal(t, m, got)
		for n := range b {
			_, err := Parse(b[:n], 70)
			require.Error(t, err)
		}
		_, err = Parse(append(b, 0), 70)
		require.Error(t, err)
	}
	beyond := Message{Kind: Out, Round: 1, Suspects: NewSet(128), Certain: NewSet(128)}
	beyond.Suspects.Add(70)
	_, err := Parse(beyond.Append(nil), 70)
	require.Error(t, err, "a rank that there is not")
}

// What a stranger sends makes no machine panic.
func FuzzParse(f *testing.F) {
	for _, m := range someMessages() {
		f.Add(m.Append(nil), 70)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if size < 2 || size > 200 {
			return
		}
		msg, err := Parse(b, size)
		if err != nil {
			return
		}
		require.Equal(t, b, msg.Append(nil))
		for r := range 2 {
			m := New(r, size)
			m.Start(1, 2)
			msg.From = 1 - r
			m.Step(msg)
			m.Suspect(size-1, true)
			m.Take()
		}
	})
}

func TestSet(t *testing.T) {
	a, b := NewSet(130), NewSet(130)
	a.Add(0)
	a.Add(129)
	b.Add(64)
	require.Equal(t, []int{0, 129}, a.Ranks())
	require.False(t, a.Contains(b))
	require.True(t, a.Unite(b))
	require.False(t, a.Unite(b))
	require.True(t, a.Contains(b))
	require.Equal(t, 3, a.Len())
	require.False(t, a.Equal(b))
	require.True(t, a.Has(64) && !a.Has(65))
}
