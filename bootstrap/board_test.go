package bootstrap

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/bootstrap/internal/wire"
	"github.com/gccl/gccl/bootstrap/store"
)

// meetBy connects size ranks that know nothing of each other but what change gives them.
func meetBy(t *testing.T, size int, change func(*Config)) {
	t.Helper()
	var all sync.WaitGroup
	for r := range size {
		cfg := Config{Rank: r, Size: size, LocalSize: size, RunID: "job", Timeout: 30 * time.Second}
		change(&cfg)
		all.Go(func() {
			g, err := Connect(context.Background(), cfg)
			if assert.NoError(t, err) {
				assert.NoError(t, g.Barrier(context.Background()))
				assert.NoError(t, g.Close())
			}
		})
	}
	all.Wait()
}

func TestRendezvousByDirectory(t *testing.T) {
	dir := t.TempDir()
	// What a crashed run of the same name left: an address where nobody listens, another secret.
	run := wire.DigestRun("job")
	s, err := store.NewFile(dir)
	require.NoError(t, err)
	stale := notice{secret: "old", addrs: []string{"127.0.0.1:1"}}
	require.NoError(t, s.Set(context.Background(), fmt.Sprintf("gccl/%x/0/root", run[:]), []byte(stale.String())))

	meetBy(t, 3, func(c *Config) { c.Rendezvous = "file://" + dir })
	meetBy(t, 3, func(c *Config) { c.Rendezvous, c.Epoch = "file://"+dir, 1 })
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Equal(t, []string{filepath.Join(dir, "+lock")}, left, "the notice is taken down")
}

func TestRendezvousByServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := store.Serve(l, "s", nil)
	defer server.Close()
	meetBy(t, 3, func(c *Config) { c.Rendezvous, c.Secret = "tcp://"+l.Addr().String(), "s" })
	own := store.NewMemory()
	meetBy(t, 3, func(c *Config) { c.Store = own })
}

func TestRendezvousNeedsARunID(t *testing.T) {
	_, err := Connect(context.Background(), Config{Size: 2, Rendezvous: "file://" + t.TempDir()})
	assert.ErrorIs(t, err, ErrConfig)
	assert.ErrorContains(t, err, "GCCL_RUN_ID")
}

func TestRendezvousNobodyComes(t *testing.T) {
	cfg := Config{Rank: 1, Size: 2, RunID: "job", Store: store.NewMemory(), Timeout: 30 * time.Millisecond}
	_, err := Connect(context.Background(), cfg)
	assert.ErrorIs(t, err, ErrTimeout)
	assert.ErrorContains(t, err, "rank 0 has not told its address")
}

// Ports are tried until the right root is found, past other jobs that hold ports of the same range.
func TestJobsShareDerivedPorts(t *testing.T) {
	ports := freeRange(t, 8)
	var jobs sync.WaitGroup
	for job := range 4 {
		jobs.Go(func() {
			meetBy(t, 3, func(c *Config) { c.Root, c.RunID = "127.0.0.1:"+ports, fmt.Sprint("job", job) })
		})
	}
	jobs.Wait()
}

// freeRange finds n ports in a row that are free now.
func freeRange(t *testing.T, n int) string {
	t.Helper()
	for first := 21000; first < 32000; first += n {
		var open []net.Listener
		for port := first; port < first+n; port++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				break
			}
			open = append(open, l)
		}
		closeAll(open)
		if len(open) == n {
			return fmt.Sprintf("%d-%d", first, first+n-1)
		}
	}
	t.Fatal("no free ports")
	return ""
}

func TestGroupsFormThroughNoise(t *testing.T) {
	before := openFDs(t)
	for range 3 {
		l, addr := listen(t)
		stop := make(chan struct{})
		var noisy sync.WaitGroup
		for _, noise := range []string{"", "abc", strings.Repeat("\xa5\x00", 32<<10), "GCCL\x01\x01\x00\x01" + strings.Repeat("o", 72)} {
			noisy.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if nc, err := net.Dial("tcp", addr); err == nil {
						nc.Write([]byte(noise))
						nc.Close()
					}
				}
			})
		}
		silent, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		meetBy(t, 6, func(c *Config) {
			c.Root = addr
			if c.Rank == 0 {
				c.Listener = l
			}
		})
		close(stop)
		noisy.Wait()
		silent.Close()
	}
	assert.Equal(t, before, openFDs(t))
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestNotices(t *testing.T) {
	n := notice{secret: "s/ \n", addrs: []string{"1.2.3.4:5", "[::1]:6"}}
	got, err := parseNotice(n.String())
	require.NoError(t, err)
	assert.Equal(t, n, got)
	assert.False(t, strings.ContainsAny(n.String(), " \n="), "PMI could not carry it")
	for _, text := range []string{"", "gccl1", "gccl1//", "gccl1/x/1.2.3.4:5", "gccl1//host:5", "gccl1//1.2.3.4", "gccl2//1.2.3.4:5", "gccl1//1.2.3.4:5/"} {
		_, err := parseNotice(text)
		assert.ErrorIs(t, err, ErrMismatch, "%q", text)
	}
}

func TestConfigurationsRefused(t *testing.T) {
	for text, cfg := range map[string]Config{
		"from 0 to size-1":       {Rank: 2, Size: 2},
		"at most":                {Size: maxSize + 1},
		"nothing says where":     {Size: 2},
		"want host:port":         {Size: 2, Root: "nowhere"},
		"ports":                  {Size: 2, Root: "h:1", ListenPorts: "x"},
		"no address that one":    {Size: 2, Rank: 1, Root: "0.0.0.0:1"},
		"loopback address":       {Size: 2, Rank: 1, LocalSize: 1, Root: "127.0.0.1:1"},
		"no interface matches":   {Size: 2, Root: "127.0.0.1:1", Interface: "=does-not-exist"},
		"want names with commas": {Size: 2, Root: "127.0.0.1:1", Interface: "a,^b"},
		"rank 0 runs on another": {Size: 2, Root: "192.0.2.77:1", RootIsGuess: true},
	} {
		_, err := Connect(context.Background(), cfg)
		assert.ErrorIs(t, err, ErrConfig, text)
		assert.ErrorContains(t, err, text)
	}
	l, addr := listen(t)
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := Connect(ctx, Config{Size: 2, Root: addr})
	assert.ErrorContains(t, err, "address already in use")
	assert.ErrorContains(t, err, "MASTER_PORT")
}
