package tuner

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/schedule"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// config is a communicator of one host over shm with the usual links.
func config(size int) Config {
	return Config{Catalog: catalog(), Size: size, Local: "shm", Net: "shm", Lanes: 4, Slots: 8, SlotBytes: 256 << 10, Channels: 2}
}

func tunerOf(t *testing.T, cfg Config) *Tuner {
	t.Helper()
	tu, err := New(cfg)
	require.NoError(t, err)
	return tu
}

func query(c schedule.Collective, bytes int) Query {
	return Query{Collective: c, Bytes: bytes, InPlace: c != schedule.AllToAll}
}

// hosts places ranks: "4,4".
func hosts(counts ...int) (list []int) {
	for h, n := range counts {
		for range n {
			list = append(list, h)
		}
	}
	return list
}

// TestChoices shows what is chosen where, as a table: a change of a constant shows up here, and is to be
// looked at before it is committed.
func TestChoices(t *testing.T) {
	var b strings.Builder
	for _, s := range []struct {
		name       string
		size       int
		hosts      []int
		local, net string
		load       int
		registered bool
	}{
		{"shm, 2 ranks", 2, nil, "shm", "shm", 1, false},
		{"shm, 2 ranks, registered", 2, nil, "shm", "shm", 1, true},
		{"shm, 8 ranks on 2 cores", 8, nil, "shm", "shm", 4, false},
		{"shm, 8 ranks on 2 cores, registered", 8, nil, "shm", "shm", 4, true},
		{"tcp, 2 ranks", 2, nil, "tcp", "tcp", 1, false},
		{"tcp, 4 ranks on 2 cores", 4, nil, "tcp", "tcp", 2, false},
		{"shm, 64 ranks", 64, nil, "shm", "shm", 1, false},
		{"tcp, 4 ranks", 4, hosts(1, 1, 1, 1), "tcp", "tcp", 1, false},
		{"shm+tcp, 2 hosts of 4", 8, hosts(4, 4), "shm", "tcp", 1, false},
		{"shm+tcp, 4 hosts of 2", 8, hosts(2, 2, 2, 2), "shm", "tcp", 1, false},
		{"shm+verbs, 8 hosts of 8", 64, hosts(8, 8, 8, 8, 8, 8, 8, 8), "shm", "verbs", 1, false},
	} {
		cfg := config(s.size)
		cfg.Hosts, cfg.Local, cfg.Net, cfg.Load = s.hosts, s.local, s.net, s.load
		tu := tunerOf(t, cfg)
		fmt.Fprintf(&b, "%s\n", s.name)
		for _, c := range schedule.Collectives() {
			last := ""
			for bytes := 8; bytes <= 64<<20; bytes *= 2 {
				q := query(c, bytes)
				q.Registered = s.registered
				ch, err := tu.Choose(q)
				require.NoError(t, err)
				if text := ch.Candidate.String(); text != last {
					fmt.Fprintf(&b, "  %-13v from %8d: %s\n", c, bytes, text)
					last = text
				}
			}
		}
	}
	golden(t, "testdata/choices.golden", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// What is chosen serves the call, whatever the call and the situation.
func TestChoiceServes(t *testing.T) {
	cat := catalog()
	rapid.Check(t, func(rt *rapid.T) {
		cfg := config(rapid.IntRange(1, 12).Draw(rt, "size"))
		cfg.Lanes = rapid.IntRange(4, 8).Draw(rt, "lanes")
		cfg.Channels = rapid.IntRange(1, cfg.Lanes).Draw(rt, "channels")
		cfg.Slots = 1 << rapid.IntRange(1, 4).Draw(rt, "slots")
		cfg.SlotBytes = 64 << rapid.IntRange(0, 14).Draw(rt, "slot bytes")
		cfg.Load = rapid.IntRange(0, 4).Draw(rt, "load")
		cfg.Reproducible = rapid.Bool().Draw(rt, "reproducible")
		cfg.Local = rapid.SampledFrom([]string{"shm", "tcp", "loopback"}).Draw(rt, "local")
		cfg.Net = cfg.Local
		if rapid.Bool().Draw(rt, "several hosts") {
			cfg.Net = rapid.SampledFrom([]string{"tcp", "verbs"}).Draw(rt, "net")
			cfg.Hosts = make([]int, cfg.Size)
			for r := 1; r < cfg.Size; r++ {
				most := 0
				for _, h := range cfg.Hosts {
					most = max(most, h+1)
				}
				cfg.Hosts[r] = rapid.IntRange(0, most).Draw(rt, "host")
			}
		}
		tu, err := New(cfg)
		require.NoError(rt, err)
		c := rapid.SampledFrom(schedule.Collectives()).Draw(rt, "collective")
		q := query(c, rapid.IntRange(0, 1<<28).Draw(rt, "bytes"))
		q.Registered = rapid.Bool().Draw(rt, "registered")
		q.Ordered = c.Reduces() && rapid.Bool().Draw(rt, "ordered")
		q.Narrow = rapid.Bool().Draw(rt, "narrow")
		if c == schedule.AllGather || c == schedule.ReduceScatter {
			q.Uneven = rapid.Bool().Draw(rt, "uneven")
		}
		ch, err := tu.Choose(q)
		require.NoError(rt, err)
		in := cat[ch.Index]
		require.Equal(rt, c, in.Collective)
		require.NoError(rt, in.Supports(cfg.Size, ch.Shape))
		require.True(rt, in.Ordered || !q.Ordered)
		require.True(rt, in.Uneven || !q.Uneven)
		require.True(rt, in.Canonical || !cfg.Reproducible || !c.Reduces())
		for r := range cfg.Size {
			s, err := in.Make(r, cfg.Size, ch.Shape)
			require.NoError(rt, err)
			require.LessOrEqual(rt, len(s.Lanes)*ch.Channels, cfg.Lanes)
			segments := (ch.Chunk + cfg.SlotBytes - 1) / cfg.SlotBytes
			require.LessOrEqual(rt, segments, s.MaxSegments(cfg.Slots), "%v", ch.Candidate)
		}
		again, err := tu.Choose(q)
		require.NoError(rt, err)
		require.Equal(rt, ch, again)
		cands, why := tu.Explain(q)
		require.Equal(rt, ch.Candidate, cands[0])
		require.Equal(rt, ch.Why, why)
	})
}

func TestRefusals(t *testing.T) {
	refused := func(cfg Config, q Query, name string) string {
		cands, _ := tunerOf(t, cfg).Explain(q)
		for _, c := range cands {
			if c.Algorithm == name {
				return c.Refused
			}
		}
		t.Fatalf("no candidate %s", name)
		return ""
	}
	cfg := config(3)
	ar := query(schedule.AllReduce, 1<<20)
	require.Empty(t, refused(cfg, ar, "ring.AllReduce"))
	q := ar
	q.Ordered = true
	require.Contains(t, refused(cfg, q, "ring.AllReduce"), "does not commute")
	require.Empty(t, refused(cfg, q, "direct.AllReduceTwoShot"))
	require.Contains(t, refused(cfg, ar, "direct.AllReduceTwoLevel"), "several hosts")

	rep := cfg
	rep.Reproducible = true
	require.Contains(t, refused(rep, ar, "ring.AllReduce"), "reproducible")
	require.Empty(t, refused(rep, ar, "direct.AllReduceTwoShot"))
	q = ar
	q.Exact = true
	require.Empty(t, refused(rep, q, "ring.AllReduce"))
	q = query(schedule.Scan, 1<<20)
	q.Narrow = true
	require.Empty(t, refused(rep, q, "direct.ScanLinear"))
	require.Empty(t, refused(rep, query(schedule.AllGather, 8), "ring.AllGather"))

	a2a := query(schedule.AllToAll, 1<<20)
	a2a.InPlace = true
	require.Contains(t, refused(cfg, a2a, "direct.AllToAllPairwise"), "in place")
	a2a.InPlace, a2a.Uneven, a2a.Pairwise = false, true, true
	require.Contains(t, refused(cfg, a2a, "direct.AllToAllBruck"), "equal lengths")

	far := cfg
	far.Local = "verbs" // of which no measurement is in the table
	require.Empty(t, refused(far, query(schedule.AllToAll, shortMost), "direct.AllToAllDirect"))
	require.Contains(t, refused(far, query(schedule.AllToAll, 1<<20), "direct.AllToAllDirect"), "short calls")
	far.Rules, _ = ParseRules("alltoall:AllToAllDirect", cfg.Catalog)
	require.Empty(t, refused(far, query(schedule.AllToAll, 1<<20), "direct.AllToAllDirect"))

	few := cfg
	few.Lanes = 3
	require.Contains(t, refused(few, ar, "tree.AllReduceDouble"), "4 lanes")
	few = config(16)
	few.Slots = 2
	require.Contains(t, refused(few, ar, "direct.AllReduceHalvingDoubling"), "GCCL_SLOTS")

	cfg.Rules, _ = ParseRules("allreduce:ring", cfg.Catalog)
	require.Contains(t, refused(cfg, ar, "direct.AllReduceTwoShot"), "GCCL_ALGO")
	q = ar
	q.Free = true
	require.Empty(t, refused(cfg, q, "direct.AllReduceTwoShot"))
	q = ar
	q.Ordered = true
	_, err := tunerOf(t, cfg).Choose(q)
	require.ErrorIs(t, err, ErrNone)
	require.ErrorContains(t, err, "ring.AllReduce: the operation does not commute")
	require.ErrorContains(t, err, "direct.AllReduceTwoShot: excluded by GCCL_ALGO")
	cfg.Rules, _ = ParseRules("allreduce:TwoLevel", cfg.Catalog)
	ch, err := tunerOf(t, cfg).Choose(ar) // asked for by name
	require.NoError(t, err)
	require.Equal(t, "direct.AllReduceTwoLevel", ch.Algorithm)
}

// Two-level algorithms win between hosts of several ranks, where it matters: long messages over one
// port a host.
func TestTwoLevelsBetweenHosts(t *testing.T) {
	cfg := config(24)
	cfg.Hosts, cfg.Net, cfg.Slots = hosts(6, 6, 6, 6), "verbs", 64 // it runs 16 chunks ahead
	ch, err := tunerOf(t, cfg).Choose(query(schedule.AllReduce, 64<<20))
	require.NoError(t, err)
	require.Equal(t, "direct.AllReduceTwoLevel", ch.Algorithm)
}

func TestFile(t *testing.T) {
	here := Machine{OS: "linux", Arch: "amd64", CPU: "model", Cores: 2}
	cfg := config(2)
	plain := tunerOf(t, cfg)
	entry := func(name string, bytes int, ns int64) Entry {
		return plain.Entry(query(schedule.AllReduce, bytes), Candidate{Algorithm: name, Channels: 1, Chunk: 256 << 10}, ns)
	}
	f := &File{Machine: here, Created: "2026-01-01T00:00:00Z"}
	f.Merge([]Entry{
		entry("ring.AllReduce", 1000, 1000), entry("ring.AllReduce", 3000, 9000), entry("ring.AllReduce", 2000, 1200),
		entry("direct.AllReduceTwoShot", 1000, 1100), entry("direct.AllReduceTwoShot", 3000, 1300),
	})
	f.Merge([]Entry{entry("ring.AllReduce", 3000, 3200)}) // measured anew
	require.Len(t, f.Entries, 5)
	path := t.TempDir() + "/tuning.json"
	require.NoError(t, f.Save(path))
	var err error
	cfg.File, err = Load(path, here)
	require.NoError(t, err)
	require.Equal(t, f.Entries, cfg.File.Entries)
	require.Len(t, cfg.File.Digest(), 16)
	tu := tunerOf(t, cfg)
	for _, tc := range []struct {
		bytes int
		name  string
		took  time.Duration
	}{
		{8, "ring.AllReduce", 1000}, {1000, "ring.AllReduce", 1000}, {1500, "ring.AllReduce", 1100},
		{2000, "ring.AllReduce", 1200}, {3000, "direct.AllReduceTwoShot", 1300}, {6000, "direct.AllReduceTwoShot", 2600},
	} {
		ch, err := tu.Choose(query(schedule.AllReduce, tc.bytes))
		require.NoError(t, err)
		require.Equal(t, tc.name, ch.Algorithm, "%d bytes", tc.bytes)
		require.Equal(t, tc.took, ch.Measured, "%d bytes", tc.bytes)
		require.Contains(t, ch.Why, "tuning file")
	}
	for _, other := range []Query{query(schedule.AllReduce, 6001), query(schedule.Broadcast, 1000), {Collective: schedule.AllReduce, Bytes: 1000, Registered: true}} {
		ch, err := tu.Choose(other)
		require.NoError(t, err)
		require.NotContains(t, ch.Why, "tuning file", "%+v", other)
	}
	q := query(schedule.AllReduce, 1000)
	q.Ordered = true // the fastest is refused
	ch, err := tu.Choose(q)
	require.NoError(t, err)
	require.Equal(t, "direct.AllReduceTwoShot", ch.Algorithm)

	left, err := os.ReadDir(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestFileRefused(t *testing.T) {
	here := Machine{OS: "linux", Arch: "amd64", CPU: "model", Cores: 2}
	dir := t.TempDir()
	write := func(text string) string {
		path := dir + "/f.json"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	const head = `{"format":"gccl tuning","version":1,"machine":{"os":"linux","arch":"amd64","cpu":"model","cores":2},"entries":[`
	const entry = `{"collective":"allreduce","class":"shm","ranks":2,"hosts":1,"algorithm":"a","channels":1,"chunk":0,"bytes":8,"ns":70}`
	_, err := Load(write(head+entry+"]}"), here)
	require.NoError(t, err)
	for text, want := range map[string]string{
		"":              "not a tuning file",
		"[]":            "not a tuning file",
		`{"version":1}`: `its format is ""`,
		strings.Replace(head, ":1,", ":2,", 1) + "]}":                      "version 2, this build reads version 1: measure again",
		strings.Replace(head, `"cores":2`, `"cores":4`, 1) + "]}":          "measured on another machine (model, 4 cores, linux/amd64; this is model, 2 cores",
		head + strings.Replace(entry, "allreduce", "barrier", 1) + "]}":    "entry 0",
		head + strings.Replace(entry, `"ns":70`, `"ns":0`, 1) + "]}":       "entry 0",
		head + strings.Replace(entry, `"ranks":2`, `"ranks":-2`, 1) + "]}": "out of range",
	} {
		_, err := Load(write(text), here)
		require.ErrorIs(t, err, ErrFile, text)
		require.ErrorContains(t, err, want, text)
	}
	_, err = Load(dir+"/none", here)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorIs(t, (&File{}).Save(dir+"/none/f.json"), ErrFile)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"format":"gccl tuning","version":1,"entries":[{"collective":"scan","class":"shm","ranks":2,"hosts":1,"algorithm":"direct.ScanLinear","channels":1,"chunk":262144,"bytes":1125899906842624,"ns":3600000000000},{"collective":"scan","class":"shm","ranks":2,"hosts":1,"algorithm":"direct.ScanLinear","channels":1,"chunk":262144,"bytes":0,"ns":1}]}`), 1<<40)
	cfg := config(2)
	f.Fuzz(func(t *testing.T, b []byte, bytes int) {
		file, err := Decode(b)
		if err != nil {
			return
		}
		cfg := cfg
		cfg.File = file
		tu, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ch, err := tu.Choose(query(schedule.Scan, bytes&(1<<50-1)))
		if err != nil || ch.Measured < 0 || ch.Measured > 2*time.Hour {
			t.Fatalf("%v, measured %v", err, ch.Measured)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Size = 0 },
		func(c *Config) { c.Hosts = []int{0} },
		func(c *Config) { c.Slots = 0 },
		func(c *Config) { c.Net = "pigeon" },
	} {
		cfg := config(2)
		change(&cfg)
		_, err := New(cfg)
		require.Error(t, err)
	}
}
