package collective_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// disagreement is a pair of calls of which rank 2 makes the other one. Every rank's error must contain
// all the words.
type disagreement struct {
	name      string
	mine, odd collective.Call
	words     []string
}

const guardBytes = 4096

// arena is memory for the tensors of a call, with guards around each.
type arena struct {
	b   []byte
	src int // where the second one begins, with its guard
}

// tensor returns n elements between two guards, from a given offset on.
func (a *arena) tensor(at int, dt tensor.DType, n int) (tensor.Tensor, int) {
	size := n * dt.Size()
	t, err := tensor.FromBytes(dt, a.b[at+guardBytes:][:size:size])
	if err != nil {
		panic(err)
	}
	return t, at + 2*guardBytes + (size+63)&^63
}

const guard = 0xA5

// gaps are the bytes before, between and behind two tensors, of which dst comes first.
func (a *arena) gaps(dst, src tensor.Tensor) [3][]byte {
	return [3][]byte{a.b[:guardBytes], a.b[guardBytes+len(dst.Bytes()) : a.src+guardBytes], a.b[a.src+guardBytes+len(src.Bytes()):]}
}

func (a *arena) fill(dst, src tensor.Tensor) {
	for _, gap := range a.gaps(dst, src) {
		gap[0] = guard
		for n := 1; n < len(gap); n *= 2 {
			copy(gap[n:], gap[:n])
		}
	}
}

// intact reports whether the gaps are as fill left them.
func (a *arena) intact(dst, src tensor.Tensor) bool {
	for _, gap := range a.gaps(dst, src) {
		if bytes.Count(gap, []byte{guard}) != len(gap) {
			return false
		}
	}
	return true
}

// disagreements lists the cases for buffers of n float32 elements, a multiple of the number of ranks
// where the collective needs that.
func disagreements(a *arena, n, ranks int) []disagreement {
	dst, at := a.tensor(0, tensor.Float32, n)
	src, _ := a.tensor(at, tensor.Float32, n)
	a.src = at
	all := collective.Call{Kind: collective.AllReduce, Dst: dst, Src: src, Op: tensor.Sum}
	ds := []disagreement{
		{"operation", all, all, []string{"sum", "max"}},
		{"type", all, all, []string{"float32[", "int32["}},
		{"collective", all, collective.Call{Kind: collective.Broadcast, Dst: dst, Src: src}, []string{"allreduce", "broadcast"}},
		{"order", all, collective.Call{Kind: collective.Barrier}, []string{"allreduce", "barrier"}},
		{"root of a broadcast", collective.Call{Kind: collective.Broadcast, Dst: dst, Src: src}, collective.Call{Kind: collective.Broadcast, Dst: dst, Src: src, Root: 1}, nil},
		{"root of a reduction", collective.Call{Kind: collective.Reduce, Dst: dst, Src: src, Op: tensor.Sum}, collective.Call{Kind: collective.Reduce, Dst: dst, Src: src, Op: tensor.Sum, Root: 1}, nil},
	}
	if m := n / ranks; m > 0 {
		for _, k := range []collective.Kind{collective.Gather, collective.Scatter} {
			mine := collective.Call{Kind: k, Dst: dst.Slice(0, m*ranks), Src: src.Slice(0, m)}
			if k == collective.Scatter {
				mine.Dst, mine.Src = dst.Slice(0, m), src.Slice(0, m*ranks)
			}
			odd := mine
			odd.Root = 1
			ds = append(ds, disagreement{"root of a " + k.String(), mine, odd, nil})
		}
	}
	ds[0].odd.Op = tensor.Max
	ds[1].odd.Dst, _ = tensor.FromBytes(tensor.Int32, dst.Bytes())
	ds[1].odd.Src, _ = tensor.FromBytes(tensor.Int32, src.Bytes())
	// A count two smaller, of every collective: of the block where there are blocks.
	for k := collective.AllReduce; k <= collective.Exscan; k++ {
		mine := collective.Call{Kind: k, Dst: dst, Src: src, Op: tensor.Sum}
		small, large := n/ranks, n/ranks*ranks
		odd := mine
		cut := func(c *collective.Call, d, s int) { c.Dst, c.Src = c.Dst.Slice(0, d), c.Src.Slice(0, s) }
		fewer := small - 2
		switch k {
		case collective.ReduceScatter, collective.Scatter, collective.AllGather, collective.Gather, collective.AllToAll:
		default:
			fewer = n - 2
		}
		if fewer < 0 {
			continue
		}
		switch k {
		case collective.ReduceScatter, collective.Scatter:
			cut(&mine, small, large)
			cut(&odd, fewer, fewer*ranks)
		case collective.AllGather, collective.Gather:
			cut(&mine, large, small)
			cut(&odd, fewer*ranks, fewer)
		case collective.AllToAll:
			cut(&mine, large, large)
			cut(&odd, fewer*ranks, fewer*ranks)
		default:
			cut(&odd, fewer, fewer)
		}
		ds = append(ds, disagreement{"count of " + k.String(), mine, odd, []string{k.String() + " #"}})
	}
	return ds
}

// Whoever waits in Recv is said to call recv, although the description is that of the send it expects.
func TestMismatchNamesTheReceiver(t *testing.T) {
	comms, err := collective.NewLocal(t.Context(), 2, collective.Config{})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- comms[0].Send(t.Context(), tensor.Of(make([]float32, 3)), 1) }()
	err = comms[1].Recv(t.Context(), tensor.Of(make([]float32, 2)), 0)
	require.ErrorIs(t, err, collective.ErrMismatch)
	require.ErrorContains(t, err, "calls recv #1 of 2 elements of float32, rank 0")
	require.ErrorContains(t, err, "calls send #1 of 3 elements of float32")
	<-done
	for _, c := range comms {
		_ = c.Close()
	}
}

// thoroughEnv tells the ranks of a job that -thorough is set.
const thoroughEnv = "GCCL_TEST_THOROUGH"

// workMismatch goes through the disagreements, each on a communicator of its own.
func workMismatch(ctx context.Context, c *collective.Comm) error {
	sizes := []int{4, 4 << 10, 256 << 10, 64 << 20}
	a := &arena{b: make([]byte, 2*(sizes[len(sizes)-1]+3*guardBytes))}
	whole := a.b
	for _, bytes := range sizes {
		n := bytes / 4
		a.b = whole[:2*(bytes+2*guardBytes+64)]
		for i, d := range disagreements(a, n, c.Size()) {
			if bytes > 4<<10 && i%6 != 0 && os.Getenv(thoroughEnv) == "" {
				continue
			}
			if err := disagree(ctx, c, a, d); err != nil {
				return fmt.Errorf("rank %d: %s of %d bytes: %w", c.Rank(), d.name, bytes, err)
			}
		}
	}
	return nil
}

// disagree makes one case and judges what this rank sees of it.
func disagree(ctx context.Context, c *collective.Comm, a *arena, d disagreement) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	child, err := c.Dup(ctx)
	if err != nil {
		return err
	}
	call := d.mine
	if c.Rank() == 2 {
		call = d.odd
	}
	a.fill(call.Dst, call.Src)
	err = child.Start(ctx, call).Wait(ctx)
	for i := 0; err == nil && i < 2; i++ { // a rank that had what it needed sees it at the next call
		err = child.Barrier(ctx)
	}
	if !a.intact(call.Dst, call.Src) {
		return errors.New("bytes outside the buffers changed")
	}
	if !errors.Is(err, collective.ErrMismatch) {
		return fmt.Errorf("not a mismatch: %w", err)
	}
	for _, w := range append(d.words, "rank 2 (pid", " calls ") {
		if !bytes.Contains([]byte(err.Error()), []byte(w)) {
			return fmt.Errorf("%q is not in: %w", w, err)
		}
	}
	if err := c.Barrier(ctx); err != nil { // nobody leaves before all have seen it
		return err
	}
	return child.Close()
}

// One rank of four makes another call: all ranks return the mismatch with both descriptions, whatever
// carries the data and however long it is, and nothing around the buffers is touched.
func TestMismatchEverywhere(t *testing.T) {
	t.Run("loopback", func(t *testing.T) {
		comms, err := collective.NewLocal(t.Context(), 4, collective.Config{BufferBytes: 128 << 10})
		require.NoError(t, err)
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for r, c := range comms {
			wg.Go(func() { errs[r] = workMismatch(t.Context(), c) })
		}
		wg.Wait()
		for r, c := range comms {
			require.NoError(t, errs[r])
			require.NoError(t, c.Close())
		}
	})
	for _, provider := range []string{"shm", "tcp"} {
		t.Run(provider, func(t *testing.T) {
			var out output
			j := job("mismatch", 4, &out)
			j.Env = append(j.Env, "GCCL_PROVIDER="+provider, "GCCL_BUFFSIZE=128K")
			if *thorough {
				j.Env = append(j.Env, thoroughEnv+"=1")
			}
			require.NoError(t, j.Run(t.Context()), out.String())
		})
	}
}
