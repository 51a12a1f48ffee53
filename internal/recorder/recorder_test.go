package recorder

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRing(t *testing.T) {
	var r Ring
	states := func() (out []State) {
		r.Each(func(_ uint64, _ *Entry, s State) { out = append(out, s) })
		return out
	}
	require.Empty(t, states())
	r.Begin(&Sort{}, 1)
	require.True(t, r.Busy())
	require.Equal(t, []State{Running}, states())
	r.End(true)
	require.False(t, r.Busy())
	r.Begin(&Sort{}, 2)
	r.Begin(&Sort{}, 3)
	require.Equal(t, []State{Done, Running, Running}, states())
	at := time.Unix(1, 0)
	r.Waited(at)
	r.End(false)
	require.Equal(t, []State{Done, Failed, Failed}, states())
	var waited []int64
	r.Each(func(_ uint64, e *Entry, _ State) { waited = append(waited, e.Waited) })
	require.Equal(t, []int64{0, at.UnixNano(), at.UnixNano()}, waited)
}

// The ring keeps the last Len, oldest first, however many a group has.
func TestRingWraps(t *testing.T) {
	var r Ring
	for i := range 3 * Len {
		r.Begin(&Sort{}, uint32(i))
		if i%7 == 0 && i < 2*Len {
			r.End(true)
		}
	}
	next := uint32(2 * Len)
	r.Each(func(n uint64, e *Entry, s State) {
		require.Equal(t, next, e.Seq)
		require.Equal(t, uint64(next+1), n)
		require.Equal(t, Running, s)
		next++
	})
	require.Equal(t, uint32(3*Len), next)
	sort := &Sort{}
	require.Zero(t, testing.AllocsPerRun(100, func() { r.Begin(sort, 1); r.Waited(time.Unix(5, 0)); r.End(true) }))
}

// rank makes a dump whose last call is number seq in the given state.
func rank(r, size int, seq uint32, s State, waits ...int) *Dump {
	d := &Dump{Version: Version, Epoch: "e", Rank: r, Size: size, Pid: 100 + r, Host: "h", At: time.Unix(1000, 0), Seq: uint64(seq)}
	if seq > 0 {
		c := Call{N: uint64(seq), Kind: "barrier", Seq: seq, Text: "barrier #" + string('0'+rune(seq)), A: string('0' + rune(seq)), State: s}
		if s != Done {
			w := d.At.Add(-3 * time.Second)
			c.Waited = &w
			d.Lanes = []Lane{{Lane: 0, Step: 2, Steps: 5, Doing: "recv from x", WaitsFor: waits}}
		}
		d.Calls = []Call{c}
	}
	return d
}

func TestExplain(t *testing.T) {
	broken := func(d *Dump, kind string, peer int, text string) *Dump {
		d.Broken = &Broken{Kind: kind, Peer: peer, Text: text}
		return d
	}
	late := rank(2, 3, 5, Failed, 0, 1)
	late.At, late.Calls[0].Waited = late.At.Add(12*time.Second), nil
	silent := rank(1, 2, 0, Done)
	silent.Silent = true
	told := rank(0, 2, 5, Failed, 1)
	told.Peers = []Peer{{Rank: 1, Gone: "rank 1 (pid 7 on h): killed"}}
	other := rank(1, 3, 5, Running, 0)
	other.Calls[0].A, other.Calls[0].Text = "x", "broadcast #5"
	for name, c := range map[string]struct {
		dumps []*Dump
		want  []string
	}{
		"idle":         {[]*Dump{rank(0, 2, 5, Done), rank(1, 2, 5, Done)}, []string{"nobody waits"}},
		"late":         {[]*Dump{rank(0, 3, 5, Running, 2), rank(1, 3, 5, Running, 0), rank(2, 3, 4, Done)}, []string{"rank 2 is late: it is in no call, and its last, barrier #4, is done; ranks 0, 1 wait for it in barrier #5"}},
		"not begun":    {[]*Dump{rank(0, 2, 1, Running, 1), rank(1, 2, 0, Done)}, []string{"rank 1 is late: it has made no call yet; rank 0 waits for it in barrier #1"}},
		"busy":         {[]*Dump{rank(0, 2, 5, Running, 1), rank(1, 2, 5, Running)}, []string{"rank 1 is busy in barrier #5 and waits for nobody; rank 0 waits for it in barrier #5"}},
		"silent":       {[]*Dump{rank(0, 2, 5, Running, 1), silent}, []string{"rank 1 is in a call and did not answer: it computes, or its process is starved; rank 0 waits for it in barrier #5"}},
		"absent":       {[]*Dump{rank(0, 2, 5, Running, 1)}, []string{"rank 1 is absent: it left no dump; rank 0 waits for it in barrier #5"}},
		"lost":         {[]*Dump{broken(told, "peer lost", 1, "T")}, []string{"rank 1 is absent: it left no dump; rank 0 waits for it in barrier #5; rank 0 says: rank 1 (pid 7 on h): killed", "the first to fail was rank 0: T"}},
		"cycle":        {[]*Dump{rank(0, 3, 5, Running, 1), rank(1, 3, 5, Running, 0), rank(2, 3, 5, Running, 1)}, []string{"ranks wait for each other: rank 0 waits for rank 1 in barrier #5, rank 1 waits for rank 0 in barrier #5"}},
		"disagreement": {[]*Dump{rank(0, 3, 5, Running, 1), other, rank(2, 3, 5, Running, 1)}, []string{"ranks disagree about call #5: ranks 0, 2: barrier #5; rank 1: broadcast #5"}},
		"too late": {[]*Dump{broken(rank(0, 3, 5, Failed, 2), "gave up", 0, "T"), rank(1, 3, 5, Failed, 0), late},
			[]string{"rank 2 is late: it made barrier #5 12s after the others had given it up; ranks 0, 1 waited for it in barrier #5", "the first to fail was rank 0: T"}},
		"latest counts": {[]*Dump{rank(0, 1, 5, Done), rank(0, 1, 4, Running)}, []string{"nobody waits"}},
	} {
		reps := Explain(c.dumps)
		require.Len(t, reps, 1, name)
		require.Equal(t, c.want, reps[0].Findings, name)
		require.Len(t, reps[0].Ranks, c.dumps[0].Size, name)
	}
	require.Equal(t, "rank 0 (pid 100 on h): barrier #5, running after waiting for 3s; lane 0 step 2/5 (recv from x) waits for ranks 1, 2",
		Explain([]*Dump{rank(0, 3, 5, Running, 1, 2)})[0].Ranks[0])
	require.Equal(t, "ranks 1, 3 to 6, 8, 9", names([]int{1, 3, 4, 5, 6, 8, 9}))
}

// No file makes the reader panic, loop or answer nothing.
func FuzzExplain(f *testing.F) {
	for _, d := range []*Dump{rank(0, 3, 5, Running, 1, 2), rank(1, 3, 4, Failed, 0), rank(2, 3, 0, Done)} {
		b, err := d.Encode()
		require.NoError(f, err)
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var ds []*Dump
		for _, x := range [][]byte{a, b} {
			if d, err := Decode(x); err == nil && d.Size < 100 {
				ds = append(ds, d)
			}
		}
		reps := Explain(ds)
		for _, r := range reps {
			require.NotEmpty(t, r.Findings)
			require.Len(t, r.Ranks, r.Size)
		}
	})
}

func TestDecodeRefuses(t *testing.T) {
	good := rank(0, 3, 5, Running, 1)
	for name, spoil := range map[string]func(d *Dump){
		"version":  func(d *Dump) { d.Version = 2 },
		"size":     func(d *Dump) { d.Size = 0 },
		"rank":     func(d *Dump) { d.Rank = 3 },
		"negative": func(d *Dump) { d.Rank = -1 },
		"waits":    func(d *Dump) { d.Lanes[0].WaitsFor = []int{3} },
		"blame":    func(d *Dump) { d.Broken = &Broken{Peer: 3} },
	} {
		b, err := json.Marshal(good)
		require.NoError(t, err)
		d, err := Decode(b)
		require.NoError(t, err)
		spoil(d)
		b, err = d.Encode()
		require.NoError(t, err)
		_, err = Decode(b)
		require.ErrorIs(t, err, ErrFormat, name)
	}
	_, err := Decode([]byte("{"))
	require.ErrorIs(t, err, ErrFormat)
}

// What a call pays.
func BenchmarkRing(b *testing.B) {
	var r Ring
	sort := &Sort{}
	for i := uint32(0); b.Loop(); i++ {
		r.Begin(sort, i)
		r.End(true)
	}
}
