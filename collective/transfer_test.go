package collective

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// each runs f on every rank at once and fails the test on an error.
func each(t *testing.T, comms []*Comm, f func(c *Comm) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, c := range comms {
		wg.Go(func() {
			if err := f(c); err != nil {
				t.Errorf("rank %d: %v", c.rank, err)
				c.Abort("test failed")
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// ramp is a slice whose element i is base + i.
func ramp(n, base int) []int32 {
	s := make([]int32, n)
	for i := range s {
		s[i] = int32(base + i)
	}
	return s
}

// The patterns that deadlock where sends wait for their receivers.
func TestTransfersThatWouldDeadlock(t *testing.T) {
	ctx := context.Background()
	for _, wire := range []bool{false, true} {
		comms := local(t, 4, Config{Timeout: 20 * time.Second, BufferBytes: 16 << 10, noMap: wire})
		for _, n := range []int{0, 1, 100, 200_000} {
			src := func(r int) []int32 { return ramp(n, 1000*r) }
			// Everybody sends to everybody first, then receives.
			each(t, comms, func(c *Comm) error {
				for p := range c.size {
					if p != c.rank {
						if err := c.Send(ctx, tensor.Of(src(c.rank)), p); err != nil {
							return err
						}
					}
				}
				for p := range c.size {
					if p == c.rank {
						continue
					}
					got := make([]int32, n)
					if err := c.Recv(ctx, tensor.Of(got), p); err != nil {
						return err
					}
					require.Equal(t, src(p), got)
				}
				return nil
			})
			// One sends before the barrier, the other receives after it.
			each(t, comms[:2], func(c *Comm) error {
				got := make([]int32, n)
				if c.rank == 0 {
					if err := c.Send(ctx, tensor.Of(src(0)), 1); err != nil {
						return err
					}
					return c.Recv(ctx, tensor.Of(got), 1)
				}
				if err := c.Send(ctx, tensor.Of(src(1)), 0); err != nil {
					return err
				}
				err := c.Recv(ctx, tensor.Of(got), 0)
				require.Equal(t, src(0), got)
				return err
			})
			// A send while the receiver is in a collective that waits for the sender.
			each(t, comms, func(c *Comm) error {
				got := make([]int32, n)
				switch c.rank {
				case 0:
					if err := c.Send(ctx, tensor.Of(src(7)), 1); err != nil {
						return err
					}
					return c.Barrier(ctx)
				case 1:
					if err := c.Barrier(ctx); err != nil {
						return err
					}
					err := c.Recv(ctx, tensor.Of(got), 0)
					require.Equal(t, src(7), got)
					return err
				}
				return c.Barrier(ctx)
			})
		}
	}
}

func TestGroupsInAnyOrder(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 3, Config{Timeout: 20 * time.Second, BufferBytes: 16 << 10})
	const n = 50_000
	each(t, comms, func(c *Comm) error {
		sum, big := make([]int32, n), make([]int32, 3*n)
		next, prev := (c.rank+1)%3, (c.rank+2)%3
		in, own := make([]int32, n), make([]int32, 5)
		twice := [2][]int32{make([]int32, 10), make([]int32, 10)}
		calls := []Call{
			{Kind: AllReduce, Src: tensor.Of(ramp(n, c.rank)), Dst: tensor.Of(sum), Op: tensor.Sum},
			{Kind: AllGather, Src: tensor.Of(ramp(n, 7*c.rank)), Dst: tensor.Of(big)},
			{Kind: Send, Src: tensor.Of(ramp(n, c.rank)), Peer: next},
			{Kind: Recv, Dst: tensor.Of(in), Peer: prev},
			{Kind: Send, Src: tensor.Of(ramp(5, 3)), Peer: c.rank},
			{Kind: Recv, Dst: tensor.Of(own), Peer: c.rank},
			{Kind: Send, Src: tensor.Of(ramp(10, 1)), Peer: prev},
			{Kind: Send, Src: tensor.Of(ramp(10, 2)), Peer: prev},
			{Kind: Recv, Dst: tensor.Of(twice[0]), Peer: next},
			{Kind: Recv, Dst: tensor.Of(twice[1]), Peer: next},
			{Kind: Barrier},
		}
		if c.rank == 1 {
			calls[0], calls[1], calls[10] = calls[10], calls[0], calls[1]
		}
		if c.rank == 2 { // transfers first, their order within a pair kept
			calls = slices.Concat(calls[2:], calls[:2])
		}
		if err := c.Group(ctx, calls...); err != nil {
			return err
		}
		for i := range sum {
			require.Equal(t, int32(3*i+3), sum[i])
		}
		for r := range 3 {
			require.Equal(t, ramp(n, 7*r), big[r*n:(r+1)*n])
		}
		require.Equal(t, ramp(n, prev), in)
		require.Equal(t, ramp(5, 3), own)
		require.Equal(t, ramp(10, 1), twice[0])
		require.Equal(t, ramp(10, 2), twice[1])
		return nil
	})
}

func TestStartedCallsKeepTheirOrder(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 3, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		x := []int64{int64(c.rank + 1)}
		var hs []*Handle
		for range 20 {
			hs = append(hs, c.Start(ctx, Call{Kind: AllReduce, Src: tensor.Of(x), Dst: tensor.Of(x), Op: tensor.Max}))
		}
		y := []int64{1}
		if err := c.AllReduce(ctx, tensor.Of(y), tensor.Of(y), tensor.Sum); err != nil {
			return err
		}
		for _, h := range hs {
			select {
			case <-h.Done():
			default:
				t.Error("a call issued later finished before a started one")
			}
			if err := h.Wait(ctx); err != nil {
				return err
			}
		}
		require.Equal(t, int64(3), x[0])
		require.Equal(t, int64(3), y[0])
		return nil
	})
}

func TestUnevenBlocks(t *testing.T) {
	ctx := context.Background()
	for _, wire := range []bool{false, true} {
		comms := local(t, 4, Config{Timeout: 20 * time.Second, BufferBytes: 16 << 10, noMap: wire})
		for _, counts := range [][]int{{0, 0, 0, 0}, {1, 0, 3, 2}, {0, 0, 0, 7}, {5000, 1, 0, 40_000}, {50_000, 50_000, 50_000, 50_000}} {
			total := 0
			var all []int32
			for r, n := range counts {
				total += n
				all = append(all, ramp(n, 100*r)...)
			}
			each(t, comms, func(c *Comm) error {
				n, me := counts[c.rank], c.rank
				got := make([]int32, total)
				if err := c.AllGatherV(ctx, tensor.Of(got), tensor.Of(ramp(n, 100*me)), counts); err != nil {
					return err
				}
				require.Equal(t, append([]int32{}, all...), got)
				sum := make([]int32, n)
				if err := c.ReduceScatterV(ctx, tensor.Of(sum), tensor.Of(slices.Clone(all)), tensor.Sum, counts); err != nil {
					return err
				}
				for i := range sum {
					require.Equal(t, 4*int32(100*me+i), sum[i])
				}
				for root := range 4 {
					at := make([]int32, 0)
					var rootCounts []int
					if me == root {
						at, rootCounts = make([]int32, total), counts
					}
					if err := c.GatherV(ctx, tensor.Of(at), tensor.Of(ramp(n, 100*me)), rootCounts, root); err != nil {
						return err
					}
					if me == root {
						require.Equal(t, append([]int32{}, all...), at)
					}
					mine := make([]int32, n)
					if err := c.ScatterV(ctx, tensor.Of(mine), tensor.Of(at), rootCounts, root); err != nil {
						return err
					}
					require.Equal(t, ramp(n, 100*me), mine)
				}
				// Rank r sends counts[s]+r elements to rank s.
				var send, recv []int
				var out, want []int32
				for p := range 4 {
					send, recv = append(send, counts[p]+me), append(recv, n+p)
					out = append(out, ramp(counts[p]+me, 1000*me+p)...)
					want = append(want, ramp(n+p, 1000*p+me)...)
				}
				in := make([]int32, len(want))
				if err := c.AllToAllV(ctx, tensor.Of(in), tensor.Of(out), send, recv); err != nil {
					return err
				}
				require.Equal(t, append([]int32{}, want...), in)
				return nil
			})
		}
	}
}

// Registered tensors: the same results, by lent and placed messages.
func TestAlloc(t *testing.T) {
	ctx := context.Background()
	for _, n := range []int{1, 2, 3, 4} {
		comms := local(t, n, Config{Timeout: 20 * time.Second})
		each(t, comms, func(c *Comm) error {
			a, err := c.Alloc(ctx, tensor.Int32, 300_000)
			if err != nil {
				return err
			}
			b, err := c.Alloc(ctx, tensor.Int32, 300_000)
			if err != nil {
				return err
			}
			for _, count := range []int{0, 1, 500, 4096, 299_999} {
				for _, inPlace := range []bool{false, true} {
					src, dst := a.Slice(0, count), b.Slice(0, count)
					if inPlace {
						dst = src
					}
					copy(src.Bytes(), tensor.Of(ramp(count, c.rank)).Bytes())
					if err := c.AllReduce(ctx, dst, src, tensor.Sum); err != nil {
						return err
					}
					want := make([]int32, count)
					for i := range want {
						want[i] = int32(n*i + n*(n-1)/2)
					}
					require.Equal(t, tensor.Of(want).Bytes(), dst.Bytes(), "count %d in place %v", count, inPlace)
					if err := c.Broadcast(ctx, dst, dst, n-1); err != nil {
						return err
					}
				}
			}
			if err := c.Free(a); err != nil {
				return err
			}
			require.ErrorIs(t, c.Free(tensor.Of(ramp(3, 0))), ErrInvalid)
			return c.Barrier(ctx)
		})
	}
}

// noAlloc is a device that has no memory for tensors.
type noAlloc struct{ rdma.Device }

func (d noAlloc) Alloc(n int, purpose string) (rdma.Region, error) {
	if purpose == "tensor" {
		return nil, errors.New("no memory")
	}
	return d.Device.Alloc(n, purpose)
}

// An Alloc that fails on one rank fails on all, in whatever way, and all can go on.
func TestAllocFailsAlike(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 3, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		_, err := c.Alloc(ctx, tensor.Int32, 1000+c.rank/2)
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "alloc of 400")
		if c.rank == 1 {
			c.devices.list[0] = noAlloc{c.devices.list[0]}
		}
		_, err = c.Alloc(ctx, tensor.Int32, 1000)
		require.ErrorContains(t, err, map[bool]string{true: "no memory", false: "rank 1"}[c.rank == 1])
		if c.rank == 1 {
			c.devices.list[0] = c.devices.list[0].(noAlloc).Device
		}
		a, err := c.Alloc(ctx, tensor.Int32, 50_000)
		if err != nil {
			return err
		}
		copy(a.Bytes(), tensor.Of(ramp(50_000, c.rank)).Bytes())
		if err := c.AllReduce(ctx, a, a, tensor.Sum); err != nil {
			return err
		}
		require.Equal(t, tensor.Of([]int32{3, 6}).Bytes(), a.Bytes()[:8])
		return nil
	})
}

func TestSplitAndDup(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 6, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		color, key := c.rank%2, -c.rank
		if c.rank == 5 {
			color = NoColor
		}
		child, err := c.Split(ctx, color, key)
		if err != nil {
			return err
		}
		if c.rank == 5 {
			require.Nil(t, child)
			return c.Barrier(ctx)
		}
		want := map[int][2]int{0: {2, 3}, 2: {1, 3}, 4: {0, 3}, 1: {1, 2}, 3: {0, 2}}[c.rank]
		require.Equal(t, want, [2]int{child.Rank(), child.Size()})
		x := []int32{int32(c.rank)}
		if err := child.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil {
			return err
		}
		require.Equal(t, []int32{6, 4}[c.rank%2], x[0])
		dup, err := child.Dup(ctx)
		if err != nil {
			return err
		}
		if err := child.Close(); err != nil {
			return err
		}
		a, err := dup.Alloc(ctx, tensor.Int32, 10_000)
		if err != nil {
			return err
		}
		if err := dup.AllReduce(ctx, a, a, tensor.Sum); err != nil {
			return err
		}
		if err := dup.Close(); err != nil {
			return err
		}
		return c.Barrier(ctx)
	})
}

func TestPreparedCalls(t *testing.T) {
	ctx := context.Background()
	comms := local(t, 3, Config{Timeout: 20 * time.Second})
	each(t, comms, func(c *Comm) error {
		x, y := make([]int64, 5), make([]int64, 5)
		p, err := c.Prepare(Call{Kind: AllReduce, Src: tensor.Of(x), Dst: tensor.Of(y), Op: tensor.Sum})
		if err != nil {
			return err
		}
		for i := range 50 {
			x[0] = int64(i + c.rank)
			if i%7 == 3 {
				err = p.Start(ctx).Wait(ctx)
			} else {
				err = p.Run(ctx)
			}
			if err != nil {
				return err
			}
			require.Equal(t, int64(3*i+3), y[0])
		}
		_, err = c.Prepare(Call{Kind: AllReduce, Src: tensor.Of(x), Dst: tensor.Of(y[:3]), Op: tensor.Sum})
		require.ErrorIs(t, err, ErrInvalid)
		return nil
	})
}

// A call that waits for its turn is given up when its context ends, and has not happened.
func TestQueuedCallSeesItsContext(t *testing.T) {
	comms := local(t, 2, Config{Timeout: 20 * time.Second})
	x := []int32{1}
	first := comms[0].Start(context.Background(), Call{Kind: Recv, Dst: tensor.Of(x), Peer: 1})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, comms[0].Barrier(ctx), context.DeadlineExceeded)
	require.NoError(t, comms[1].Send(context.Background(), tensor.Of([]int32{7}), 0))
	require.NoError(t, first.Wait(context.Background()))
	require.Equal(t, int32(7), x[0])
	each(t, comms, func(c *Comm) error { return c.Barrier(context.Background()) })
}
