package collective

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// newEach calls New on every rank of a loopback job with settings of its own and returns what each
// rank got. A rank that never returns fails the test.
func newEach(t *testing.T, settings []map[string]string) []error {
	t.Helper()
	return newEachThen(t, settings, func(context.Context, *Comm) error { return nil })
}

// newEachThen also runs f on the communicators.
func newEachThen(t *testing.T, settings []map[string]string, f func(context.Context, *Comm) error) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	errs := make([]error, len(settings))
	network := loopback.NewNetwork()
	var wg sync.WaitGroup
	for r, group := range bootstrap.Local(len(settings)) {
		cfg, _, err := readSettings(func(name string) (string, bool) {
			v, ok := settings[r][name]
			return v, ok
		})
		require.NoError(t, err)
		cfg.Group, cfg.network, cfg.yield = group, network, func() {}
		wg.Go(func() {
			c, err := New(ctx, cfg)
			if errs[r] = err; err == nil {
				errs[r] = errors.Join(f(ctx, c), c.Close())
			}
		})
	}
	wg.Wait()
	require.NoError(t, ctx.Err(), "a rank waited until the deadline")
	return errs
}

func tuningFile(t *testing.T, nanos int64) string {
	path := filepath.Join(t.TempDir(), "tuning.json")
	f := &tuner.File{Machine: ThisMachine(), Entries: []tuner.Entry{{Collective: "allreduce", Class: "shm", Ranks: 2, Hosts: 1, Algorithm: "ring.AllReduce", Channels: 1, Bytes: 64, Nanos: nanos}}}
	require.NoError(t, f.Save(path))
	return path
}

// A setting that ranks do not share is refused by all of them, by name and with both values, whichever
// rank has the odd one.
func TestEverySettingMustAgree(t *testing.T) {
	one, other := tuningFile(t, 1000), tuningFile(t, 2000)
	digest := func(path string) string {
		f, err := tuner.Load(path, ThisMachine())
		require.NoError(t, err)
		return f.Digest()
	}
	for _, tc := range []struct{ name, a, b, shownA, shownB string }{
		{"GCCL_PROVIDER", "shm", "shm,tcp", "", ""},
		{"GCCL_NCHANNELS", "2", "3", "", ""},
		{"GCCL_BUFFSIZE", "64K", "128K", "65536", "131072"},
		{"GCCL_SLOTS", "8", "16", "", ""},
		{"GCCL_ALGO", "ring", "allreduce:^ring", "", ""},
		{"GCCL_ALGO", "", "tree", "", ""},
		{"GCCL_REPRODUCIBLE", "0", "1", "false", "true"},
		{"GCCL_CHECKSUM", "0", "1", "false", "true"},
		{"GCCL_IB_QPS", "1", "2", "", ""},
		{"GCCL_TCP_ENCRYPT", "0", "1", "false", "true"},
		{"GCCL_TUNING_FILE", one, other, digest(one), digest(other)},
		{"GCCL_TUNING_FILE", "", other, "", digest(other)},
	} {
		for odd := range 3 {
			t.Run(fmt.Sprintf("%s=%s/rank=%d", tc.name, filepath.Base(tc.b), odd), func(t *testing.T) {
				settings := []map[string]string{{tc.name: tc.a}, {tc.name: tc.a}, {tc.name: tc.a}}
				settings[odd][tc.name] = tc.b
				shownA, shownB := tc.shownA, tc.shownB
				if shownA == "" {
					shownA = tc.a
				}
				if shownB == "" {
					shownB = tc.b
				}
				for r, err := range newEach(t, settings) {
					require.ErrorIs(t, err, ErrMismatch, "rank %d", r)
					require.ErrorContains(t, err, tc.name+" is ")
					require.ErrorContains(t, err, fmt.Sprintf("%q", shownA))
					require.ErrorContains(t, err, fmt.Sprintf("%q", shownB))
				}
			})
		}
	}
}

// mayDiffer are settings that ranks need not share, with a value that is not the default.
var mayDiffer = map[string]string{
	"GCCL_STRICT": "1", "GCCL_TIMEOUT": "15s", "GCCL_SPIN": "7", "GCCL_LEND_MIN": "64", "GCCL_CMA": "1", "GCCL_HOSTID": "elsewhere",
	"GCCL_SOCKET_IFNAME": "^none", "GCCL_IB_HCA": "^none", "GCCL_IB_TIMEOUT": "20", "GCCL_IB_GID_INDEX": "3", "GCCL_IB_TC": "106", "GCCL_IB_SL": "3", "GCCL_IB_PKEY": "1", "GCCL_HEARTBEAT": "7s",
	"GCCL_TCP_CHECKSUM": "1", "GCCL_TCP_SOCKETS": "2", "GCCL_DEVICE_PATH": "staged", "GCCL_CUDA_LIBRARY": "libcuda.so.1", "GCCL_DUMP_DIR": os.TempDir(), "GCCL_DUMP_SIGNAL": "1", "GCCL_DEBUG": "silent",
}

// What may differ does, and calls are right all the same. Every setting is one of these or one that must agree, so that
// ranks that differ in it never hang.
func TestSettingsThatMayDiffer(t *testing.T) {
	must := agreed(&Config{}, &tuning{file: &tuner.File{}})
	for _, s := range Settings() {
		value, may := mayDiffer[s.Name]
		require.NotEqual(t, may, slices.Contains(slices.Collect(maps.Keys(must)), s.Name), "%s: is it to be the same on all ranks?", s.Name)
		if !may {
			continue
		}
		settings := []map[string]string{{}, {s.Name: value}, {}}
		for r, err := range newEachThen(t, settings, worksAllTheSame) {
			require.NoError(t, err, "%s, rank %d", s.Name, r)
		}
	}
	settings := []map[string]string{{}, mayDiffer, {}}
	for r, err := range newEachThen(t, settings, worksAllTheSame) {
		require.NoError(t, err, "all of them, rank %d", r)
	}
}

// worksAllTheSame runs a few calls on ordinary and on registered memory.
func worksAllTheSame(ctx context.Context, c *Comm) error {
	for i := range catalog() {
		info := &catalog()[i]
		if info.Collective != schedule.AllReduce || info.Supports(c.size, schedule.Shape{Hosts: c.tuning.hosts}) != nil {
			continue
		}
		for _, count := range []int{1, 5000} {
			if err := (tableCase{info: info, dt: tensor.Float32, op: tensor.Sum, count: count}).run(c); err != nil {
				return err
			}
		}
	}
	if err := c.retune(""); err != nil {
		return err
	}
	t, err := c.Alloc(ctx, tensor.Int32, 5000)
	if err != nil {
		return err
	}
	if err := c.AllReduce(ctx, t, t, tensor.Sum); err != nil {
		return err
	}
	return c.Barrier(ctx)
}

// Several settings that differ are told in one order, the same on all ranks.
func TestAllRanksSayTheSame(t *testing.T) {
	settings := []map[string]string{{"GCCL_SLOTS": "16", "GCCL_ALGO": "ring", "GCCL_NCHANNELS": "1"}, {}, {}}
	for range 5 {
		errs := newEach(t, settings)
		for _, err := range errs {
			require.EqualError(t, err, errs[0].Error())
		}
	}
}

// A rank that cannot read what its settings name does not leave the others waiting.
func TestRankThatCannotGoOnTellsTheOthers(t *testing.T) {
	path := tuningFile(t, 1000)
	foreign := filepath.Join(t.TempDir(), "foreign.json")
	machine := ThisMachine()
	machine.CPU, machine.Cores = "abacus", 1
	require.NoError(t, (&tuner.File{Machine: machine}).Save(foreign))
	broken := filepath.Join(t.TempDir(), "broken.json")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	for _, bad := range []string{filepath.Join(t.TempDir(), "missing.json"), foreign, broken} {
		for odd := range 2 {
			settings := []map[string]string{{"GCCL_TUNING_FILE": path}, {"GCCL_TUNING_FILE": path}}
			settings[odd]["GCCL_TUNING_FILE"] = bad
			for r, err := range newEach(t, settings) {
				kind := ErrGaveUp
				if r == odd {
					kind = ErrInvalid
				} else {
					require.ErrorContains(t, err, fmt.Sprintf("rank %d", odd))
				}
				require.ErrorIs(t, err, kind, "rank %d", r)
				require.ErrorContains(t, err, "GCCL_TUNING_FILE")
				require.ErrorContains(t, err, filepath.Base(bad))
			}
		}
	}
}

func helloOf(t *testing.T, c *Comm) []byte {
	h := hello{Version: helloVersion, Host: "h", Agreed: agreed(&c.cfg, &c.tuning)}
	b, err := h.encode()
	require.NoError(t, err)
	return b
}

// Ranks of builds that know other algorithms do not work together.
func TestCatalogsMustAgree(t *testing.T) {
	c := &Comm{cfg: Config{}, catalog: catalog()}
	require.NoError(t, c.loadTuning())
	other := &Comm{cfg: Config{}, catalog: catalog()[1:]}
	require.NoError(t, other.loadTuning())
	renamed := &Comm{cfg: Config{}, catalog: catalog()}
	renamed.catalog[3].Name += "2"
	require.NoError(t, renamed.loadTuning())
	for _, d := range []string{other.tuning.digest, renamed.tuning.digest} {
		require.NotEqual(t, c.tuning.digest, d)
	}
	blobs := [][]byte{helloOf(t, c), helloOf(t, c), helloOf(t, renamed)}
	_, err := decodeHellos(blobs)
	require.ErrorIs(t, err, ErrMismatch)
	require.ErrorContains(t, err, "algorithms is ")
	require.ErrorContains(t, err, c.tuning.digest)
	require.ErrorContains(t, err, renamed.tuning.digest)
	blobs[2] = blobs[0]
	_, err = decodeHellos(blobs)
	require.NoError(t, err)
}
