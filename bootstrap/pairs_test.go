package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// eachPairs runs a test with ranks that meet over TCP, and over a local network.
func eachPairs(t *testing.T, size int, f func(t *testing.T, ps []*Pairs)) {
	for _, over := range []string{"tcp", "local"} {
		t.Run(over, func(t *testing.T) {
			ports, addrs := make([]*Port, size), make([][]string, size)
			net := NewLocalNet()
			for r := range size {
				if ports[r] = net.OpenPort(); over == "tcp" {
					ports[r].Close()
					var err error
					ports[r], err = OpenPort(t.Context(), Config{Rank: r, Size: size, LocalSize: size})
					require.NoError(t, err)
				}
				defer ports[r].Close()
				addrs[r] = ports[r].Addrs()
			}
			ps := make([]*Pairs, size)
			for r := range ps {
				ps[r] = OpenPairs(ports[r], Circle{Secret: "s", RunID: "run", Rank: r, Size: size}, addrs, 10*time.Second)
			}
			f(t, ps)
			for _, p := range ps {
				p.Close()
				p.Close()
			}
		})
	}
}

func TestAllPairsMeet(t *testing.T) {
	const size = 9
	eachPairs(t, size, func(t *testing.T, ps []*Pairs) {
		for round := range 2 {
			var wg sync.WaitGroup
			for a := range size {
				for b := range size {
					if a == b {
						continue
					}
					wg.Go(func() {
						var got string
						err := ps[a].Meet(t.Context(), b, fmt.Appendf(nil, "%d to %d, %d", a, b, round), func(_ context.Context, theirs []byte) error {
							got = string(theirs)
							return nil
						})
						assert.NoError(t, err)
						assert.Equal(t, fmt.Sprintf("%d to %d, %d", b, a, round), got)
					})
				}
			}
			wg.Wait()
		}
	})
}

func use(ctx context.Context, theirs []byte) error { return nil }

func TestAMeetingFailsOnBothSides(t *testing.T) {
	bad := errors.New("it does not fit")
	for _, failing := range []int{0, 1} {
		eachPairs(t, 2, func(t *testing.T, ps []*Pairs) {
			var errs [2]error
			var wg sync.WaitGroup
			for r := range 2 {
				wg.Go(func() {
					errs[r] = ps[r].Meet(t.Context(), 1-r, nil, func(context.Context, []byte) error {
						if r == failing {
							return bad
						}
						return nil
					})
				})
			}
			wg.Wait()
			require.ErrorIs(t, errs[failing], bad)
			require.ErrorContains(t, errs[1-failing], "it cannot use what it was told: it does not fit")
		})
	}
}

// Who waits for a peer that has ended is told so, and who gives up does so alone: a later meeting works.
func TestMeetingsEnd(t *testing.T) {
	eachPairs(t, 3, func(t *testing.T, ps []*Pairs) {
		for r := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			err := ps[r].Meet(ctx, 1-r, nil, use)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() { assert.NoError(t, ps[r].Meet(t.Context(), 1-r, nil, use)) })
		}
		wg.Wait()
		ps[1].Close()
		ps[1].port.Close()
		for _, r := range []int{0, 2} { // who would have waited, and who would have called
			err := ps[r].Meet(t.Context(), 1, nil, use)
			require.ErrorIs(t, err, ErrPeerLost)
			var blamed *RankError
			require.ErrorAs(t, err, &blamed)
			require.Equal(t, 1, blamed.Rank)
		}
		wg.Go(func() { assert.ErrorIs(t, ps[0].Meet(t.Context(), 2, nil, use), ErrClosed) })
		time.Sleep(20 * time.Millisecond) // mostly, it waits by then
		ps[0].Close()
		wg.Wait()
	})
}

// Whoever meets a rank that fails, has met it, or comes to meet it, is told why: whether it called or was
// called, waits, or is at work on what it was given.
func TestAFailureIsTold(t *testing.T) {
	const size, fails = 5, 2
	eachPairs(t, size, func(t *testing.T, ps []*Pairs) {
		told := func(r int, err error) {
			var told *Told
			if assert.ErrorAs(t, err, &told, "rank %d", r) {
				assert.Equal(t, Told{Rank: fails, Word: []byte("rank 4 is gone")}, *told)
			}
		}
		atWork := make(chan struct{}, 2)
		work := func(ctx context.Context, _ []byte) error {
			atWork <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		var wg sync.WaitGroup
		for _, r := range []int{1, 3} { // at work on both sides, or waiting for the other's word
			wg.Go(func() { assert.ErrorIs(t, ps[fails].Meet(t.Context(), r, nil, work), errFailed) })
			wg.Go(func() { told(r, ps[r].Meet(t.Context(), fails, nil, use)) })
		}
		<-atWork
		<-atWork
		wg.Go(func() { told(0, ps[0].Meet(t.Context(), fails, nil, use)) }) // waits to be called
		ps[fails].Fail([]byte("rank 4 is gone"))
		ps[fails].Fail([]byte("something else"))
		told(4, ps[4].Meet(t.Context(), fails, nil, use))
		told(1, ps[1].Meet(t.Context(), fails, nil, use))
		wg.Wait()
		require.ErrorIs(t, ps[fails].Meet(t.Context(), 0, nil, use), errFailed)
	})
}

// That the other has failed counts more than what follows from that, such as memory that is gone, even if
// its word does not come through because this rank was busy.
func TestAFailureCountsMoreThanItsConsequences(t *testing.T) {
	eachPairs(t, 3, func(t *testing.T, ps []*Pairs) {
		begun, failed := make(chan struct{}, 2), make(chan struct{})
		var wg sync.WaitGroup
		for _, r := range []int{0, 2} {
			wg.Go(func() {
				assert.Error(t, ps[1].Meet(t.Context(), r, nil, func(ctx context.Context, _ []byte) error {
					<-ctx.Done()
					return ctx.Err()
				}))
			})
			wg.Go(func() {
				err := ps[r].Meet(t.Context(), 1, nil, func(context.Context, []byte) error {
					begun <- struct{}{}
					<-failed
					return errors.New("what I was given is gone")
				})
				assert.ErrorAs(t, err, new(*Told), "rank %d", r)
			})
		}
		<-begun
		<-begun
		ps[1].Fail([]byte("why"))
		close(failed)
		wg.Wait()
	})
}

// What ends the use of what a rank was given is why its meeting failed, also if that use says no more than
// that it was ended.
func TestAFailureEndsTheUseOfWhatWasGiven(t *testing.T) {
	eachPairs(t, 2, func(t *testing.T, ps []*Pairs) {
		begun := make(chan struct{}, 2)
		until := func(ctx context.Context, _ []byte) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.ErrorIs(t, ps[0].Meet(t.Context(), 1, nil, until), context.Canceled) })
		wg.Go(func() { assert.ErrorAs(t, ps[1].Meet(t.Context(), 0, nil, until), new(*Told)) })
		<-begun
		<-begun
		ps[0].Fail([]byte("why"))
		wg.Wait()
	})
}

// Strangers at a rank's port, and ranks with another secret, hold up no meeting.
func TestPairsAmongStrangers(t *testing.T) {
	eachPairs(t, 2, func(t *testing.T, ps []*Pairs) {
		addr := ps[0].addrs[0][0]
		circle := ps[1].circle
		circle.Secret = "another"
		_, err := ps[1].port.Call(t.Context(), circle, ForMeeting, 0, ps[1].addrs[0])
		require.ErrorIs(t, err, ErrConfig, "another secret was let in")
		for range 300 {
			if ps[0].port.dial != nil {
				break
			}
			nc, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer nc.Close()
			_, _ = nc.Write([]byte("GET"))
		}
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() { assert.NoError(t, ps[r].Meet(t.Context(), 1-r, nil, use)) })
		}
		wg.Wait()
	})
}
