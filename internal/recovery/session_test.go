package recovery

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/stretchr/testify/require"
)

// sessions opens n ports and the sessions of the ranks that answer; the others' ports are open, and silent.
func sessions(n int, silent ...int) (out []*Session, end func()) {
	network := bootstrap.NewLocalNet()
	ports, addrs := make([]*bootstrap.Port, n), make([][]string, n)
	for r := range n {
		ports[r] = network.OpenPort()
		addrs[r] = ports[r].Addrs()
	}
	out = make([]*Session, n)
	for r := range n {
		out[r] = Open(Config{
			Circle: bootstrap.Circle{RunID: "test", Rank: r, Size: n}, Port: ports[r], Addrs: addrs,
			Silence: 10 * time.Second, Describe: func(r int) string { return fmt.Sprintf("rank %d", r) },
		})
	}
	for _, r := range silent {
		out[r].Retire()
	}
	return out, func() {
		for r, s := range out {
			s.Close()
			ports[r].Close()
		}
	}
}

// A silent rank is out after the time set, where the others are a majority; else they give up, together.
func TestSilence(t *testing.T) {
	for _, tc := range []struct {
		ranks, silent int
		err           error
	}{{3, 0, nil}, {3, 2, nil}, {4, 1, nil}, {2, 0, ErrNoQuorum}, {2, 1, ErrNoQuorum}} {
		synctest.Test(t, func(t *testing.T) {
			ss, end := sessions(tc.ranks, tc.silent)
			defer end()
			began := time.Now()
			var wg sync.WaitGroup
			for r, s := range ss {
				if r == tc.silent {
					continue
				}
				wg.Go(func() {
					v, round, err := s.Agree(t.Context(), 1, 5)
					if tc.err != nil {
						require.ErrorIs(t, err, tc.err)
						return
					}
					require.NoError(t, err)
					require.EqualValues(t, 1, round)
					require.Equal(t, []int{tc.silent}, v.Failed.Ranks())
					require.EqualValues(t, 5, v.Flags)
					require.Error(t, s.Failures()[tc.silent])
				})
			}
			wg.Wait()
			took := time.Since(began)
			require.Greater(t, took, 9*time.Second)
			require.Less(t, took, 31*time.Second)
		})
	}
}

// A rank that leaves is out at once, and one that does not call keeps the others until their contexts end.
func TestLeaveAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ss, end := sessions(3)
		defer end()
		ss[0].Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _, err := ss[1].Agree(ctx, 1, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded, "rank 2 answers, and does not call")
		require.ErrorContains(t, err, "waited for rank 2")
		began := time.Now()
		v, _, err := ss[2].Agree(t.Context(), 1, 1)
		require.NoError(t, err)
		require.Equal(t, []int{0, 1}, v.Failed.Ranks())
		require.Less(t, time.Since(began), time.Second)
		_, _, err = ss[0].Agree(t.Context(), 1, 1)
		require.ErrorIs(t, err, ErrLeft)
	})
}

// A rank that calls have found lost is called at once: its port proves that it is gone before others had
// time to call.
func TestHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ss, end := sessions(3)
		defer end()
		ss[2].Close()
		began := time.Now()
		var wg sync.WaitGroup
		for _, s := range ss[:2] {
			wg.Go(func() {
				s.Hint(2)
				v, _, err := s.Agree(t.Context(), 1, 1)
				require.NoError(t, err)
				require.Equal(t, []int{2}, v.Failed.Ranks())
			})
		}
		wg.Wait()
		require.Less(t, time.Since(began), headStart)
	})
}

// A guard ends what some ranks do together when one of them leaves, or has failed at it.
func TestGuard(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ss, end := sessions(3)
			defer end()
			var wg sync.WaitGroup
			for r, s := range ss {
				wg.Go(func() {
					defer s.Watch()()
					v, _, err := s.Agree(t.Context(), 2, 1)
					require.NoError(t, err)
					members := v.Failed.Clone()
					for r := range 3 {
						members.Add(r)
					}
					if r != 1 {
						ctx, cancel := s.Guard(t.Context(), members)
						defer cancel()
						<-ctx.Done()
						require.NoError(t, t.Context().Err())
					}
					switch {
					case r != 1:
						_, _, err = s.Agree(t.Context(), 2, 0)
					case fails:
						_, _, err = s.Agree(t.Context(), 2, 0)
					default:
						s.Close()
					}
					require.NoError(t, err)
				})
			}
			wg.Wait()
		})
	}
}
