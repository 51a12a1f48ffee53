package collective

import (
	"os"
	"testing"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// The file descriptors that New makes sure of are those that links take. n ranks have n(n−1) links and n times what each rank has
// once, so that four take 8 links' more than twice what two take.
func TestLinkFiles(t *testing.T) {
	for _, cfg := range []Config{{Provider: "shm"}, {Provider: "tcp"}, {Provider: "tcp", TCPSockets: 3}} {
		cfg.BufferBytes = 64 << 10
		cfg.Bootstrap.Secret = "s"
		taken := func(n int) int {
			before := len(files(t))
			comms := make([]*Comm, n)
			g, ctx := errgroup.WithContext(patient(t))
			for r, group := range bootstrap.Local(n) {
				own := cfg
				own.Group = group
				g.Go(func() (err error) {
					comms[r], err = New(ctx, own)
					return err
				})
			}
			require.NoError(t, g.Wait())
			most := len(files(t)) - before
			closeAll(t, comms...)
			require.Eventually(t, func() bool { return len(files(t)) == before }, testTime, time.Millisecond)
			return most
		}
		_ = over(t, 1, cfg.Provider)[0].Close() // what a process opens once
		// Again, if what was dialled in vain was not closed yet.
		require.Eventually(t, func() bool { return taken(4)-2*taken(2) == 8*linkFiles(cfg.Provider, &cfg) }, testTime, time.Millisecond, "%+v", cfg)
	}
}

func files(t *testing.T) []os.DirEntry {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return list
}
