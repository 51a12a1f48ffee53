package collective

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// Disagreements: rank 2 of 4 makes another call than the others. All ranks must return
// ErrMismatch with both descriptions, soon, and no byte around the buffers may change.
func TestMismatch(t *testing.T) {
	type made struct {
		name  string
		other func(c *Comm, ctx context.Context, b *guarded, n int) error
		words []string
	}
	all := func(c *Comm, ctx context.Context, b *guarded, n int) error {
		return c.AllReduce(ctx, b.t.Slice(0, n), b.t.Slice(0, n), tensor.Sum)
	}
	cases := []made{
		{"count", func(c *Comm, ctx context.Context, b *guarded, n int) error { return all(c, ctx, b, n-2) }, []string{"float32["}},
		{"type", func(c *Comm, ctx context.Context, b *guarded, n int) error {
			x, _ := tensor.FromBytes(tensor.Int32, b.t.Slice(0, n).Bytes())
			return c.AllReduce(ctx, x, x, tensor.Sum)
		}, []string{"float32", "int32"}},
		{"operation", func(c *Comm, ctx context.Context, b *guarded, n int) error {
			return c.AllReduce(ctx, b.t.Slice(0, n), b.t.Slice(0, n), tensor.Max)
		}, []string{"sum", "max"}},
		{"collective", func(c *Comm, ctx context.Context, b *guarded, n int) error {
			return c.Broadcast(ctx, b.t.Slice(0, n), b.t.Slice(0, n), 0)
		}, []string{"allreduce", "broadcast"}},
		{"order", func(c *Comm, ctx context.Context, b *guarded, n int) error {
			return c.Barrier(ctx)
		}, []string{"allreduce", "barrier"}},
	}
	for _, wire := range []bool{false, true} {
		for _, tc := range cases {
			for _, n := range []int{3, 1000, 1 << 17} {
				comms := localBroken(t, 4, Config{Timeout: 20 * time.Second, noMap: wire})
				errs := make([]error, 4)
				var wg sync.WaitGroup
				for r, c := range comms {
					wg.Go(func() {
						b := filled(tensor.Float32, n, true, func(int) float64 { return 1 })
						ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
						defer cancel()
						call := all
						if r == 2 {
							call = tc.other
						}
						errs[r] = call(c, ctx, &b, n)
						if errs[r] == nil { // a rank that had what it needed sees it at the next call
							errs[r] = c.Barrier(ctx)
						}
						require.True(t, b.intact(), "bytes outside the buffers changed")
					})
				}
				wg.Wait()
				for r, err := range errs {
					require.ErrorIs(t, err, ErrMismatch, "%s, n %d, rank %d, wire %v", tc.name, n, r, wire)
					var e *StepError
					require.ErrorAs(t, err, &e)
					for _, w := range tc.words {
						require.True(t, strings.Contains(err.Error(), w), "%s, n %d, rank %d: %q lacks %q", tc.name, n, r, err, w)
					}
				}
			}
		}
	}
}

// A message that a rank's own call does not take shows the disagreement, too: rank 1 waits for rank 2,
// which has done its part, and rank 0's message is not for a broadcast from rank 2.
func TestMismatchByAMessageNotTaken(t *testing.T) {
	for _, wire := range []bool{false, true} {
		comms := localBroken(t, 3, Config{noMap: wire, Algo: "broadcast:BroadcastDirect"})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		errs := make([]error, 3)
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() {
				x := make([]float32, 5)
				root := 0
				if r == 1 {
					root = 2
				}
				errs[r] = c.Broadcast(ctx, tensor.Of(x), tensor.Of(x), root)
			})
		}
		wg.Wait()
		require.ErrorIs(t, errs[1], ErrMismatch)
		require.ErrorContains(t, errs[1], "root 0")
		require.ErrorContains(t, errs[1], "root 2")
	}
}

func localBroken(t *testing.T, n int, cfg Config) []*Comm {
	t.Helper()
	comms, err := NewLocal(context.Background(), n, cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		for _, c := range comms {
			_ = c.Close()
		}
	})
	return comms
}

// A wrong call is refused before anything is sent, and the communicator goes on.
func TestInvalidCallsChangeNothing(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 2, Config{Timeout: 20 * time.Second})
	f, i := make([]float32, 8), make([]int32, 8)
	each(t, comms, func(c *Comm) error {
		four, wide := []int{4, 4}, make([]float32, 9)
		for want, err := range map[string]error{
			"allgatherv(float32[4]): counts[0] is -4":                                     c.AllGatherV(ctx, tensor.Of(f), tensor.Of(f[:4]), []int{-4, 12}),
			"alltoallv(float32[8]): send counts[0] is -1":                                 c.AllToAllV(ctx, tensor.Of(f), tensor.Of(f), []int{-1, 9}, four),
			"alltoallv(float32[8]): receive counts[1] is -1":                              c.AllToAllV(ctx, tensor.Of(f), tensor.Of(f), four, []int{9, -1}),
			"alltoallv(float32[8]): source has 8 elements, the send counts say 9":         c.AllToAllV(ctx, tensor.Of(f), tensor.Of(f), []int{4, 5}, four),
			"alltoallv(float32[8]): destination has 8 elements, the receive counts say 7": c.AllToAllV(ctx, tensor.Of(f), tensor.Of(f), four, []int{4, 3}),
			"alltoallv(float32[8]): destination and source overlap":                       c.AllToAllV(ctx, tensor.Of(wide[1:]), tensor.Of(wide[:8]), four, four),
			"broadcast(float32[8], root 0): counts per rank are not":                      c.Group(ctx, Call{Kind: Broadcast, Dst: tensor.Of(f), Src: tensor.Of(f), Counts: four}),
			"memory of send(float32[8], to ":                                              c.SendRecv(ctx, tensor.Of(f), 1-c.rank, tensor.Of(f), 1-c.rank),
			"memory of allreduce(float32[8], sum) overlaps with that of recv(float32[1], from ": c.Group(ctx,
				Call{Kind: Recv, Dst: tensor.Of(f[7:]), Peer: 1 - c.rank}, Call{Kind: AllReduce, Dst: tensor.Of(f), Src: tensor.Of(f), Op: tensor.Sum}),
			"call of kind 200, which there is not": c.Group(ctx, Call{Kind: 200, Peer: c.rank}),
			"call of kind 0, which there is not":   c.Group(ctx, Call{}),
		} {
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, want)
		}
		for name, err := range map[string]error{
			"types":           c.AllReduce(ctx, tensor.Of(make([]int32, 8)), tensor.Of(f), tensor.Sum),
			"lengths":         c.AllReduce(ctx, tensor.Of(make([]float32, 7)), tensor.Of(f), tensor.Sum),
			"no operation":    c.AllReduce(ctx, tensor.Of(f), tensor.Of(f), tensor.Op{}),
			"bits of floats":  c.AllReduce(ctx, tensor.Of(f), tensor.Of(f), tensor.BitXor),
			"no tensor":       c.AllReduce(ctx, tensor.Tensor{}, tensor.Tensor{}, tensor.Sum),
			"overlap":         c.AllReduce(ctx, tensor.Of(f[1:]), tensor.Of(f[:7]), tensor.Sum),
			"root":            c.Broadcast(ctx, tensor.Of(f), tensor.Of(f), 2),
			"uneven":          c.ReduceScatter(ctx, tensor.Of(make([]float32, 3)), tensor.Of(make([]float32, 7)), tensor.Sum),
			"foreign block":   c.AllGather(ctx, tensor.Of(f), tensor.Of(f[4*(1-c.rank):][:4])),
			"counts":          c.AllGatherV(ctx, tensor.Of(f), tensor.Of(f[:4]), []int{4}),
			"negative":        c.AllGatherV(ctx, tensor.Of(f), tensor.Of(f[:4]), []int{-4, 12}),
			"uneven in place": c.AllToAllV(ctx, tensor.Of(f), tensor.Of(f), []int{4, 4}, []int{4, 4}),
			"self":            c.Send(ctx, tensor.Of(f), c.rank),
			"peer":            c.Recv(ctx, tensor.Of(f), 9),
			"prefix average":  c.Scan(ctx, tensor.Of(make([]int32, 8)), tensor.Of(i), tensor.Avg),
			"alloc":           second(c.Alloc(ctx, tensor.Invalid, 1)),
		} {
			require.ErrorIs(t, err, ErrInvalid, name)
		}
		return c.Barrier(ctx)
	})
}

func second[T any](_ T, err error) error { return err }

// Deadlines: the rank that waits names whom it waits for; the others learn that it gave up.
func TestDeadline(t *testing.T) {
	comms := localBroken(t, 3, Config{})
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for r := range 2 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			errs[r] = comms[r].Barrier(ctx)
		})
	}
	wg.Wait()
	// The late rank has what the others sent before they gave up, or learns of it; the next call fails.
	if errs[2] = comms[2].Barrier(context.Background()); errs[2] == nil {
		errs[2] = comms[2].Barrier(context.Background())
	}
	late := 0
	for r, err := range errs {
		require.Error(t, err)
		var e *StepError
		require.ErrorAs(t, err, &e, "rank %d", r)
		if e.Kind == context.DeadlineExceeded {
			late++
			require.Contains(t, err.Error(), "rank 2")
		} else {
			require.ErrorIs(t, err, ErrGaveUp)
		}
	}
	require.Positive(t, late)
	require.ErrorIs(t, comms[2].Barrier(context.Background()), ErrGaveUp, "broken stays broken")
}

func TestAbortEndsACallInFlight(t *testing.T) {
	comms := localBroken(t, 2, Config{})
	done := make(chan error)
	go func() { done <- comms[0].Barrier(context.Background()) }()
	comms[0].Abort("enough")
	require.ErrorIs(t, <-done, ErrGaveUp)
	err := comms[1].Barrier(context.Background())
	if err == nil { // it had all it needed from before
		err = comms[1].Barrier(context.Background())
	}
	require.ErrorIs(t, err, ErrGaveUp)
}

// A rank that closes after its part does not spoil the call for others; the next call names it.
func TestCloseAfterItsPart(t *testing.T) {
	for _, wire := range []bool{false, true} {
		comms := localBroken(t, 3, Config{Timeout: 20 * time.Second, noMap: wire})
		ctx := context.Background()
		x := []float32{1, 2, 3}
		require.NoError(t, comms[0].Broadcast(ctx, tensor.Of(x), tensor.Of(x), 0))
		require.NoError(t, comms[0].Close())
		for _, c := range comms[1:] {
			got := make([]float32, 3)
			require.NoError(t, c.Broadcast(ctx, tensor.Of(got), tensor.Tensor{}, 0))
			require.Equal(t, x, got)
		}
		err := comms[1].Barrier(ctx)
		require.ErrorIs(t, err, ErrPeerLost)
		require.Contains(t, err.Error(), "rank 0")
		require.Contains(t, err.Error(), "closed")
		require.ErrorIs(t, comms[0].Barrier(ctx), ErrClosed)
	}
}

// Close from another goroutine ends a call in flight; nothing crashes, and the peer learns of it.
func TestCloseEndsACallInFlight(t *testing.T) {
	for _, wire := range []bool{false, true} {
		comms := localBroken(t, 2, Config{noMap: wire})
		began, done := make(chan struct{}), make(chan error)
		go func() {
			close(began)
			done <- comms[0].Barrier(context.Background())
		}()
		<-began
		require.NoError(t, comms[0].Close())
		require.Error(t, <-done)
		comms[0].Abort("after the end")
		// The peer may have all it needs for this one.
		if err := comms[1].Barrier(context.Background()); err == nil {
			require.Error(t, comms[1].Barrier(context.Background()))
		}
	}
}

// After Close every method says that, also on a communicator that was broken.
func TestClosedComesFirst(t *testing.T) {
	ctx := context.Background()
	comms := localBroken(t, 2, Config{Timeout: 20 * time.Second})
	c := comms[0]
	c.Abort("for the test")
	require.ErrorIs(t, c.Barrier(ctx), ErrGaveUp)
	require.NoError(t, c.Close())
	h := c.Start(ctx, Call{Kind: Barrier})
	<-h.Done()
	_, agree := c.Agree(ctx, 1)
	_, shrink := c.Shrink(ctx)
	_, split := c.Split(ctx, 0, 0)
	for name, err := range map[string]error{
		"barrier": c.Barrier(ctx), "start": h.Err(), "alloc": second(c.Alloc(ctx, tensor.Int8, 1)),
		"agree": agree, "shrink": shrink, "split": split,
	} {
		require.ErrorIs(t, err, ErrClosed, name)
		require.NotErrorIs(t, err, ErrGaveUp, name)
	}
}
