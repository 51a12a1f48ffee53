package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/rdma/loopback"
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

// A rank that is set up differently is refused by everybody, with the variable's name and both values.
func TestSettingsMustAgree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tuning.json")
	require.NoError(t, (&tuner.File{Machine: ThisMachine()}).Save(file))
	for name, tc := range map[string]struct {
		set          func(*Config)
		value, other string
	}{
		"GCCL_ALGO":         {func(c *Config) { c.Algo = "allreduce:ring" }, `""`, `"allreduce:ring"`},
		"GCCL_REPRODUCIBLE": {func(c *Config) { c.Reproducible = true }, `"false"`, `"true"`},
		"GCCL_TUNING_FILE":  {func(c *Config) { c.TuningFile = file }, `""`, ""},
		"GCCL_NCHANNELS":    {func(c *Config) { c.Channels = 3 }, `"2"`, `"3"`},
	} {
		for who := range 2 {
			network := loopback.NewNetwork()
			var wg sync.WaitGroup
			for r, group := range bootstrap.Local(2) {
				cfg := Config{Group: group, network: network, yield: runtime.Gosched}
				if r == who {
					tc.set(&cfg)
				}
				wg.Go(func() {
					c, err := New(t.Context(), cfg)
					if err == nil {
						_ = c.Close()
					}
					if !errors.Is(err, ErrMismatch) || !contains(err, name, tc.value, tc.other, "rank 0", "rank 1") {
						t.Errorf("rank %d, %s set on rank %d: %v", r, name, who, err)
					}
				})
			}
			wg.Wait()
		}
	}
}

func TestWrongRulesAreRefused(t *testing.T) {
	_, err := NewLocal(t.Context(), 2, Config{Algo: "allreduce:rign"})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, `GCCL_ALGO=allreduce:rign`)
	require.ErrorContains(t, err, "there are ring, tree, direct")
	_, err = ConfigFromEnv(func(name string) (string, bool) {
		v, ok := map[string]string{"NCCL_ALGO": "NVLS"}[name]
		return v, ok
	})
	require.ErrorContains(t, err, `NCCL_ALGO="NVLS"`)
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

// Reproducible: whatever algorithm, channels, windows, buffers and providers, the bits are the same.
func TestReproducible(t *testing.T) {
	const count = 1001
	type result struct {
		who string
		b   []byte
	}
	for _, n := range []int{3, 5} {
		first := map[string]result{} // by collective, type and operation
		differed := false
		check := func(key, who string, got []byte) error {
			w, ok := first[key]
			if !ok {
				first[key] = result{who, bytes.Clone(got)}
			} else if !bytes.Equal(w.b, got) {
				return fmt.Errorf("%s: %s differs from %s", key, who, w.who)
			}
			return nil
		}
		for name, cfg := range map[string]Config{
			"plain":        {},
			"posted":       {noMap: true},
			"small slots":  {BufferBytes: 2 << 10, Slots: 8, Channels: 3},
			"two segments": {BufferBytes: 1 << 10, Slots: 4, Channels: 1, noMap: true},
			"free":         {}, // not reproducible: to see that the others could differ
		} {
			cfg.Reproducible, cfg.Timeout = name != "free", time.Minute
			comms := local(t, n, cfg)
			var mu sync.Mutex
			each(t, comms, func(c *Comm) error {
				for _, registered := range []bool{false, true} {
					if registered && name != "plain" {
						continue
					}
					for _, dt := range []tensor.DType{tensor.Float32, tensor.Float16, tensor.BFloat16, tensor.Float8E5M2} {
						src, dst, err := randoms(c, dt, count*n, registered)
						if err != nil {
							return err
						}
						for _, kind := range []Kind{AllReduce, ReduceScatter, Reduce, Scan, Exscan} {
							for _, op := range []tensor.Op{tensor.Sum, tensor.Prod, tensor.Avg, tensor.PreMulSum(0.3)} {
								if op == tensor.Avg && !kind.finishes() {
									continue
								}
								call := Call{Kind: kind, Src: src.Slice(0, count), Dst: dst.Slice(0, count), Op: op}
								if kind == ReduceScatter {
									call.Src = src
								}
								cands, err := c.Candidates(call)
								if err != nil {
									return err
								}
								for _, cand := range cands {
									if cand.Refused != "" {
										continue
									}
									p, err := c.PrepareAs(call, cand)
									if err != nil {
										return err
									}
									if err := p.Run(context.Background()); err != nil {
										return err
									}
									if c.rank == 0 && kind == Exscan || c.rank > 0 && kind == Reduce {
										continue
									}
									key := fmt.Sprintf("%d ranks, rank %d: %v %v %v", n, c.rank, kind, dt, op)
									mu.Lock()
									err = check(key, fmt.Sprintf("%s registered %v %v", name, registered, cand), call.Dst.Bytes())
									if err != nil && name == "free" {
										differed, err = true, nil
									}
									mu.Unlock()
									if err != nil {
										return err
									}
								}
							}
						}
					}
				}
				return nil
			})
		}
		require.True(t, differed, "without Reproducible nothing differs either: the test could not fail")
	}
}

// randoms are a source of random numbers near 1, the rank's own, and a destination.
func randoms(c *Comm, dt tensor.DType, count int, registered bool) (src, dst tensor.Tensor, err error) {
	for _, t := range []*tensor.Tensor{&src, &dst} {
		if registered {
			*t, err = c.Alloc(context.Background(), dt, count)
		} else {
			*t, err = tensor.FromBytes(dt, make([]byte, count*dt.Size()))
		}
		if err != nil {
			return src, dst, err
		}
	}
	rng := rand.New(rand.NewPCG(uint64(c.rank), uint64(dt)))
	for i := range count {
		copy(src.Slice(i, i+1).Bytes(), encode(dt, rng.NormFloat64()+0.5))
	}
	return src, dst, nil
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
