package collective

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// onHosts is local with the ranks on hosts of equally many.
func onHosts(t *testing.T, n, hosts int, cfg Config) []*Comm {
	t.Helper()
	comms := make([]*Comm, n)
	cfg.network, cfg.yield = loopback.NewNetwork(), runtime.Gosched
	g, ctx := errgroup.WithContext(context.Background())
	for r, group := range bootstrap.Local(n) {
		rc := cfg
		rc.Group, rc.HostID = group, fmt.Sprint("host", r*hosts/n)
		g.Go(func() (err error) {
			comms[r], err = New(ctx, rc)
			return err
		})
	}
	err := g.Wait()
	t.Cleanup(func() {
		for _, c := range comms {
			if c != nil {
				require.NoError(t, c.Close())
			}
		}
	})
	require.NoError(t, err)
	return comms
}

// With the default number of slots every algorithm that supports a size runs at it, small and in
// several windows, also where log-step algorithms run far ahead. Without -full large jobs run only those
// algorithms, and only small.
func TestDefaultSlotsServeEveryAlgorithm(t *testing.T) {
	ahead := regexp.MustCompile("^ring.All|Double|Halving|Doubling|Bruck|PAT|TwoLevel")
	for _, job := range []struct{ ranks, hosts int }{{9, 1}, {9, 3}, {16, 1}, {16, 4}, {24, 1}, {24, 8}, {32, 1}, {32, 16}} {
		t.Run(fmt.Sprintf("ranks=%d/hosts=%d", job.ranks, job.hosts), func(t *testing.T) {
			comms := onHosts(t, job.ranks, job.hosts, Config{Timeout: time.Minute, BufferBytes: 64 << 10})
			large := job.ranks > 16 && !*full
			counts := []int{5, 4099}
			if large {
				counts = counts[:1]
			}
			shape := schedule.Shape{Hosts: comms[0].tuning.hosts}
			ran := 0
			for i := range comms[0].catalog {
				info := &comms[0].catalog[i]
				if info.Supports(job.ranks, shape) != nil || large && !ahead.MatchString(info.Name) || job.hosts > 1 && !strings.Contains(info.Name, "TwoLevel") && !strings.Contains(info.Name, "Leaders") {
					continue
				}
				ran++
				each(t, comms, func(c *Comm) error {
					for _, count := range counts {
						tc := tableCase{info: info, dt: tensor.Float32, op: tensor.Sum, count: count}
						if err := tc.run(c); err != nil {
							return fmt.Errorf("%v: %w", tc, err)
						}
					}
					return nil
				})
			}
			require.Greater(t, ran, 4)
		})
	}
}

// Beyond the default, and with fewer slots than an algorithm needs, the error names the setting.
func TestTooFewSlots(t *testing.T) {
	comms := local(t, 5, Config{Slots: 2, Algo: "allreduce:HalvingDoubling"})
	each(t, comms, func(c *Comm) error {
		x := make([]float32, 5)
		err := c.AllReduce(context.Background(), tensor.Of(x), tensor.Of(x), tensor.Sum)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "raise GCCL_SLOTS")
		return nil
	})
}

func TestDefaultSlots(t *testing.T) {
	for _, tc := range []struct {
		ranks   int
		oneHost bool
		want    int
	}{{1, true, 8}, {8, true, 8}, {9, true, 16}, {16, true, 16}, {17, true, 32}, {64, true, 64}, {1000, true, 64}, {2, false, 16}, {16, false, 16}, {33, false, 64}} {
		require.Equal(t, tc.want, defaultSlots(tc.ranks, tc.oneHost), "%+v", tc)
	}
}
