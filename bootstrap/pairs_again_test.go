package bootstrap

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stage is one of two ranks, and the other's port, at which a test says what happens.
type stage struct {
	pairs           *Pairs
	meetings, looks *Entrance // the other's
}

const stageSilence = 12 * time.Second

// onStage runs a test of a rank in a bubble of testing/synctest.
func onStage(t *testing.T, rank int, f func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		net := NewLocalNet()
		ports := []*Port{net.OpenPort(), net.OpenPort()}
		circle := func(r int) Circle { return Circle{Secret: "s", RunID: "run", Rank: r, Size: 2} }
		other := ports[1-rank]
		s := &stage{OpenPairs(ports[rank], circle(rank), [][]string{ports[0].Addrs(), ports[1].Addrs()}, stageSilence),
			other.Enter(circle(1-rank), ForMeeting), other.Enter(circle(1-rank), forLooking)}
		defer func() {
			s.pairs.Close()
			for _, p := range ports {
				p.Close()
			}
		}()
		f(t, s)
	})
}

// answer answers looks until the test ends.
func (s *stage) answer(t *testing.T) {
	go func() {
		for {
			c, err := s.looks.Accept(t.Context())
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

// A contact that ends before anything was offered is the end of nothing if the other stands: who called calls
// again, and gives up when its context says so.
func TestMeetingIsTriedAgainByTheCaller(t *testing.T) {
	for _, comes := range []bool{true, false} {
		onStage(t, 1, func(t *testing.T, s *stage) {
			s.answer(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() {
				done <- s.pairs.Meet(ctx, 0, []byte("one"), func(_ context.Context, theirs []byte) error {
					assert.Equal(t, "zero", string(theirs))
					return nil
				})
			}()
			for range 3 { // the other has given up, and comes again
				c, err := s.meetings.Accept(ctx)
				require.NoError(t, err)
				c.Close()
			}
			if !comes {
				require.ErrorIs(t, <-done, context.DeadlineExceeded)
				return
			}
			c, err := s.meetings.Accept(ctx)
			require.NoError(t, err)
			begun, err := exchange(ctx, c, false, []byte("zero"), func(theirs []byte) error {
				assert.Equal(t, "one", string(theirs))
				return nil
			})
			c.Close()
			require.True(t, begun)
			require.NoError(t, err)
			require.NoError(t, <-done)
		})
	}
}

// Who is called takes the next contact when one ends early.
func TestMeetingIsTriedAgainByTheCalled(t *testing.T) {
	eachPairs(t, 2, func(t *testing.T, ps []*Pairs) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := ps[1].port.Call(ctx, ps[1].circle, ForMeeting, 0, ps[1].addrs[0])
		require.NoError(t, err)
		c.Close() // rank 1 has given up
		require.Eventually(t, func() bool {
			ps[0].mu.Lock()
			defer ps[0].mu.Unlock()
			return ps[0].arrived[1] != nil
		}, 10*time.Second, time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- ps[0].Meet(ctx, 1, nil, use) }()
		require.Eventually(t, func() bool {
			ps[0].mu.Lock()
			defer ps[0].mu.Unlock()
			return ps[0].arrived[1] == nil
		}, 10*time.Second, time.Millisecond)
		require.NoError(t, ps[1].Meet(ctx, 0, nil, use))
		require.NoError(t, <-done)
	})
}

// A rank that comes again ends its earlier contact, which it has given up; if it has not, it comes once more.
func TestWhoComesAgainCountsAnew(t *testing.T) {
	eachPairs(t, 2, func(t *testing.T, ps []*Pairs) {
		arrived := func() *Contact {
			ps[0].mu.Lock()
			defer ps[0].mu.Unlock()
			return ps[0].arrived[1]
		}
		done := make(chan error, 1)
		go func() { done <- ps[1].Meet(t.Context(), 0, nil, use) }()
		require.Eventually(t, func() bool { return arrived() != nil }, 10*time.Second, time.Millisecond)
		first := arrived()
		c, err := ps[1].port.Call(t.Context(), ps[1].circle, ForMeeting, 0, ps[1].addrs[0])
		require.NoError(t, err)
		defer c.Close()
		require.Eventually(t, func() bool { return arrived() != first }, 10*time.Second, time.Millisecond)
		second := arrived()
		require.Eventually(t, func() bool { return arrived() != second }, 10*time.Second, time.Millisecond, "rank 1 has not called again")
		require.NoError(t, ps[0].Meet(t.Context(), 1, nil, use))
		require.NoError(t, <-done)
	})
}

// A contact that has ended early because the other failed: the look that follows hears why.
func TestMeetingHearsByALookWhyItEnded(t *testing.T) {
	onStage(t, 1, func(t *testing.T, s *stage) {
		done := make(chan error, 1)
		go func() { done <- s.pairs.Meet(t.Context(), 0, nil, use) }()
		c, err := s.meetings.Accept(t.Context())
		require.NoError(t, err)
		c.Close() // its word has not come through
		look, err := s.looks.Accept(t.Context())
		require.NoError(t, err)
		look.part(append([]byte{saysFailed}, "why"...))
		var told *Told
		require.ErrorAs(t, <-done, &told)
		require.Equal(t, Told{Rank: 0, Word: []byte("why")}, *told)
	})
}

// One look that is not answered says nothing: this process may have been stopped meanwhile. Two in a row do.
func TestOneLookSaysNothing(t *testing.T) {
	onStage(t, 1, func(t *testing.T, s *stage) {
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() { done <- s.pairs.Watch(ctx, 0) }()
		began := time.Now()
		const limit = stageSilence / mostSilent
		for round := range 3 {
			// A look comes, and nobody answers for as long as it waits.
			c, err := s.looks.Accept(t.Context())
			require.NoError(t, err)
			_, err = c.Receive()
			require.Error(t, err, "round %d", round)
			c.Close()
			// The next comes at once.
			gaveUp := time.Now()
			c, err = s.looks.Accept(t.Context())
			require.NoError(t, err)
			require.Less(t, time.Since(gaveUp), firstLook)
			c.Close()
		}
		synctest.Wait()
		require.Empty(t, done, "a rank that answers every other look is no lost one")
		require.Greater(t, time.Since(began), 3*limit)
		last := time.Now()
		err := <-done
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorContains(t, err, "has not answered for 12s")
		var blamed *RankError
		require.True(t, errors.As(err, &blamed))
		require.Zero(t, blamed.Rank)
		require.GreaterOrEqual(t, time.Since(last), mostSilent*limit)
		require.Less(t, time.Since(last), 2*stageSilence)
	})
}

// While it meets a rank that does not come, a rank looks whether it is there; that it has left is the end.
func TestWhoIsAwaitedIsLookedAt(t *testing.T) {
	onStage(t, 0, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- s.pairs.Meet(ctx, 1, nil, use) }()
		for range 3 {
			c, err := s.looks.Accept(t.Context())
			require.NoError(t, err)
			c.Close()
		}
		synctest.Wait()
		require.Empty(t, done)
		s.meetings.Leave()
		s.looks.Leave()
		err := <-done
		require.ErrorIs(t, err, ErrPeerLost)
		require.ErrorIs(t, err, ErrRefused)
	})
}
