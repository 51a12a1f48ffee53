package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Ranks with the same hellos choose alike, whichever rank they are: nccl#1136 is a job in which they
// did not.
func TestRanksChooseAlike(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(rt, "ranks")
		peers := make([]hello, n)
		for r := range peers {
			peers[r].HostID = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "host")
			peers[r].CPUs = cpu.First(rapid.IntRange(0, 8).Draw(rt, "cores"))
			peers[r].Providers = rapid.SliceOfNDistinct(rapid.SampledFrom(providers()), 1, 3, rapid.ID[string]).Draw(rt, "providers")
		}
		cfg := Config{Reproducible: rapid.Bool().Draw(rt, "reproducible"), Algo: rapid.SampledFrom([]string{"", "^ring", "4K-=direct"}).Draw(rt, "algo")}
		cfg.defaults()
		comms := make([]*Comm, n)
		for r := range comms {
			comms[r] = &Comm{rank: r, size: n, cfg: cfg, catalog: catalog(), peers: slices.Clone(peers)}
			require.NoError(rt, comms[r].loadTuning())
			comms[r].geo = geometry(&cfg, peers)
			require.NoError(rt, comms[r].tune())
		}
		for range 10 {
			key := planKey{
				kind:  rapid.SampledFrom([]Kind{AllReduce, ReduceScatter, AllGather, Broadcast, Reduce, Gather, Scatter, AllToAll, Scan, Exscan, Barrier}).Draw(rt, "kind"),
				dtype: rapid.SampledFrom(tensor.DTypes()).Draw(rt, "type"), op: tensor.Sum,
				count: rapid.IntRange(0, 1<<22).Draw(rt, "count"), registered: rapid.Bool().Draw(rt, "registered"),
			}
			want, err := comms[0].choose(key)
			require.NoError(rt, err)
			for _, c := range comms[1:] {
				got, err := c.choose(key)
				require.NoError(rt, err)
				require.Equal(rt, want.index, got.index)
				require.Equal(rt, want.channels, got.channels)
				require.Equal(rt, want.window, got.window)
				require.Equal(rt, want.shape, got.shape)
			}
		}
	})
}

func TestSituation(t *testing.T) {
	at := func(host string, cores int, providers ...string) hello {
		return hello{HostID: host, CPUs: cpu.First(cores), Providers: providers}
	}
	for name, tc := range map[string]struct {
		peers []hello
		want  tuner.Config
	}{
		"alone":              {[]hello{at("a", 2, "shm")}, tuner.Config{Size: 1, Load: 1, Local: "shm", Net: "shm"}},
		"one host":           {[]hello{at("a", 2, "shm", "tcp"), at("a", 2, "shm", "tcp"), at("a", 2, "shm", "tcp")}, tuner.Config{Size: 3, Load: 2, Local: "shm", Net: "shm"}},
		"bound, a core each": {[]hello{{HostID: "a", CPUs: cpu.Set{1}, Providers: []string{"shm"}}, {HostID: "a", CPUs: cpu.Set{2}, Providers: []string{"shm"}}}, tuner.Config{Size: 2, Load: 1, Local: "shm", Net: "shm"}},
		"bound to one core":  {[]hello{{HostID: "a", CPUs: cpu.Set{2}, Providers: []string{"shm"}}, {HostID: "a", CPUs: cpu.Set{2}, Providers: []string{"shm"}}}, tuner.Config{Size: 2, Load: 2, Local: "shm", Net: "shm"}},
		"two hosts":          {[]hello{at("b", 8, "shm", "tcp"), at("a", 1, "shm", "tcp"), at("b", 8, "shm", "tcp")}, tuner.Config{Size: 3, Hosts: []int{0, 1, 0}, Load: 1, Local: "shm", Net: "tcp"}},
		"one rank a host":    {[]hello{at("b", 8, "verbs", "tcp"), at("a", 8, "verbs", "tcp")}, tuner.Config{Size: 2, Hosts: []int{0, 1}, Load: 1, Local: "verbs", Net: "verbs"}},
		// One host without a port: pairs with it talk tcp, and so the model is tcp's.
		"the slowest counts": {[]hello{at("a", 8, "verbs", "tcp"), at("b", 8, "verbs", "tcp"), at("c", 8, "tcp")}, tuner.Config{Size: 3, Hosts: []int{0, 1, 2}, Load: 1, Local: "tcp", Net: "tcp"}},
		"alike on a host":    {[]hello{at("a", 1, "tcp"), at("a", 1, "tcp")}, tuner.Config{Size: 2, Load: 2, Local: "tcp", Net: "tcp"}},
	} {
		require.Equal(t, tc.want, situation(tc.peers), name)
	}
}

func TestWrongRulesAreRefused(t *testing.T) {
	_, err := NewLocal(t.Context(), 2, Config{Algo: "allreduce:rign"})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `GCCL_ALGO=allreduce:rign`)
	require.ErrorContains(t, err, "there are ring, tree, direct")
	_, err = ConfigFromEnv(func(name string) (string, bool) {
		v, ok := map[string]string{"GCCL_ALGO": "NVLS"}[name]
		return v, ok
	})
	require.ErrorContains(t, err, `GCCL_ALGO="NVLS"`)
	cfg, err := ConfigFromEnv(func(name string) (string, bool) {
		v, ok := map[string]string{"NCCL_ALGO": "Ring,Tree"}[name]
		return v, ok
	})
	require.NoError(t, err)
	require.Equal(t, "Ring,Tree", cfg.Algo)
}

// Rules hold for calls, not for barriers; where they leave nothing, every rank says so and lives on.
func TestRulesHold(t *testing.T) {
	comms := local(t, 3, Config{Algo: "allreduce:-1K=TwoShot,1K-=ring"})
	each(t, comms, func(c *Comm) error {
		x := make([]float32, 1000)
		for n, want := range map[int]string{10: "direct.AllReduceTwoShot", 1000: "ring.AllReduce"} {
			info, err := c.Plan(Call{Kind: AllReduce, Dst: tensor.Of(x[:n]), Src: tensor.Of(x[:n]), Op: tensor.Sum})
			if err != nil || info.Algorithm != want || info.Candidates[0].Algorithm != want || info.Why == "" {
				return fmt.Errorf("%d elements: %+v, %v", n, info, err)
			}
		}
		last := tensor.Custom("last", false, func(dst, a, b []float32) { copy(dst, b) })
		err := c.AllReduce(context.Background(), tensor.Of(x), tensor.Of(x), last)
		if !errors.Is(err, ErrInvalid) || !contains(err, "ring.AllReduce: the operation does not commute") {
			return fmt.Errorf("got %v", err)
		}
		if err := c.AllReduce(context.Background(), tensor.Of(x[:9]), tensor.Of(x[:9]), last); err != nil {
			return err
		}
		return c.Barrier(context.Background())
	})
}

// Chunks as long as slots can carry are as long as messages do: a message is at most a piece, however long the slot.
func TestChunksOfLongSlots(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		comms := local(t, ranks, Config{BufferBytes: 16 << 20, Channels: 1, Timeout: 20 * time.Second})
		each(t, comms, func(c *Comm) error {
			const count = 2 << 20
			x, y := make([]int32, count), make([]int32, ranks*count)
			x[count-1] = int32(c.rank + 1)
			call := Call{Kind: AllGather, Src: tensor.Of(x), Dst: tensor.Of(y)}
			cands, err := c.Candidates(call)
			if err != nil {
				return err
			}
			for _, cand := range cands {
				if cand.Algorithm != "direct.AllGatherDirect" {
					continue
				}
				p, err := c.PrepareAs(call, cand)
				if err != nil {
					return err
				}
				if err := p.Run(context.Background()); err != nil {
					return fmt.Errorf("%v: %w", cand, err)
				}
			}
			for r := range ranks {
				if got := y[(r+1)*count-1]; got != int32(r+1) {
					return fmt.Errorf("last element of rank %d is %d", r, got)
				}
			}
			return nil
		})
	}
}

// Every candidate of every collective runs, gives what the chosen one gives, and is refused where it
// does not belong.
func TestPrepareAs(t *testing.T) {
	comms := local(t, 4, Config{})
	each(t, comms, func(c *Comm) error {
		x, y := make([]int32, 4096), make([]int32, 4096)
		for i := range x {
			x[i] = int32(c.rank*1000 + i)
		}
		for _, coll := range schedule.Collectives() {
			in, out := coll.Blocks(c.rank, c.size, 1)
			call := Call{Kind: Kind(coll), Src: tensor.Of(x[:in*1000]), Dst: tensor.Of(y[:out*1000]), Op: tensor.Sum, Root: 1}
			if err := c.do(context.Background(), &call); err != nil {
				return err
			}
			want := slices.Clone(y[:out*1000])
			cands, err := c.Candidates(call)
			if err != nil {
				return err
			}
			for _, cand := range cands {
				p, err := c.PrepareAs(call, cand)
				if (err != nil) != (cand.Refused != "") {
					return fmt.Errorf("%v: refused %q, error %v", cand, cand.Refused, err)
				}
				if err != nil {
					continue
				}
				if coll != schedule.Exscan || c.rank > 0 {
					clear(y)
				}
				if err := p.Run(context.Background()); err != nil {
					return err
				}
				if !slices.Equal(want, y[:out*1000]) {
					return fmt.Errorf("%v by %v differs from the chosen one", coll, cand)
				}
			}
			for name, wrong := range map[string]func(*tuner.Candidate){
				"channels": func(k *tuner.Candidate) { k.Channels = 9 },
				"chunk":    func(k *tuner.Candidate) { k.Chunk = 12345 },
				"index":    func(k *tuner.Candidate) { k.Index = len(c.catalog) },
				"name":     func(k *tuner.Candidate) { k.Algorithm = "ring.Nothing" },
			} {
				k := cands[0]
				wrong(&k)
				if _, err := c.PrepareAs(call, k); !errors.Is(err, ErrInvalid) {
					return fmt.Errorf("a candidate with another %s was taken: %v", name, err)
				}
			}
			e, err := c.TuningEntry(call, cands[0], 1234)
			if err != nil || e.Collective != coll.String() || e.Bytes != 4*max(coll.InBlocks(4), coll.OutBlocks(4))*1000 || e.Class != "loopback" || e.Nanos != 1234 {
				return fmt.Errorf("entry %+v, %v", e, err)
			}
		}
		return nil
	})
}

// A communicator goes by its tuning file.
func TestTuningFileDecides(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tuning.json")
	f := &tuner.File{Machine: ThisMachine()}
	f.Merge([]tuner.Entry{{Collective: "allreduce", Class: "loopback", Ranks: 2, Hosts: 1, Algorithm: "tree.AllReduce", Channels: 2, Chunk: 256 << 10, Bytes: 4000, Nanos: 50}})
	require.NoError(t, f.Save(path))
	comms := local(t, 2, Config{TuningFile: path})
	each(t, comms, func(c *Comm) error {
		x := make([]float32, 1000)
		call := Call{Kind: AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: tensor.Sum}
		info, err := c.Plan(call)
		if err != nil || info.Algorithm != "tree.AllReduce" || info.Channels != 2 || info.Candidates[0].Measured != 50 {
			return fmt.Errorf("%+v, %v", info, err)
		}
		return c.do(context.Background(), &call)
	})
	_, err := NewLocal(t.Context(), 2, Config{TuningFile: path + ".no"})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "GCCL_TUNING_FILE")
}

func contains(err error, texts ...string) bool {
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			return false
		}
	}
	return true
}
