package collective

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/internal/recorder"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// explained merges the dumps of communicators.
func explained(t *testing.T, dumps ...[]byte) recorder.Report {
	t.Helper()
	var ds []*recorder.Dump
	for _, b := range dumps {
		d, err := recorder.Decode(b)
		require.NoError(t, err)
		ds = append(ds, d)
	}
	rs := recorder.Explain(ds)
	require.Len(t, rs, 1)
	return rs[0]
}

// dumpsOf asks all ranks until those that are in a call are known to wait.
func dumpsOf(t *testing.T, comms []*Comm, waiting ...int) [][]byte {
	t.Helper()
	for {
		var dumps [][]byte
		ready := true
		for r, c := range comms {
			b := c.Dump()
			dumps = append(dumps, b)
			d, err := recorder.Decode(b)
			require.NoError(t, err)
			for _, w := range waiting {
				if r == w {
					n := len(d.Calls)
					ready = ready && n > 0 && d.Calls[n-1].State == recorder.Running && len(d.Lanes) > 0
				}
			}
		}
		if ready {
			return dumps
		}
		require.NoError(t, t.Context().Err())
	}
}

func TestDumpOfALateRank(t *testing.T) {
	for _, wire := range []bool{false, true} {
		ctx := context.Background()
		comms := local(t, 3, Config{Timeout: 20 * time.Second, noMap: wire})
		each(t, comms, func(c *Comm) error {
			return c.Broadcast(ctx, tensor.Of(make([]float32, 10)), tensor.Of(make([]float32, 10)), 1)
		})
		var hs []*Handle
		for _, c := range comms[:2] {
			y := make([]float32, 1000)
			hs = append(hs, c.Start(ctx, Call{Kind: AllReduce, Dst: tensor.Of(y), Src: tensor.Of(y), Op: tensor.Sum}))
		}
		rep := explained(t, dumpsOf(t, comms, 0, 1)...)
		require.Len(t, rep.Findings, 1)
		require.Regexp(t, `^rank 2 is late: it is in no call, and its last, broadcast #1\(float32\[10\], root 1\) by \S+, is done; ranks 0, 1 wait for it in allreduce #2\(float32\[1000\], sum\) by `, rep.Findings[0])
		y := make([]float32, 1000)
		require.NoError(t, comms[2].AllReduce(ctx, tensor.Of(y), tensor.Of(y), tensor.Sum))
		for _, h := range hs {
			require.NoError(t, h.Wait(ctx))
		}
		require.Equal(t, []string{"nobody waits"}, explained(t, dumpsOf(t, comms)...).Findings)
	}
}

func TestDumpOfACycle(t *testing.T) {
	comms := localBroken(t, 3, Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var hs []*Handle
	for r, c := range comms {
		hs = append(hs, c.Start(ctx, Call{Kind: Recv, Dst: tensor.Of(make([]int32, 5)), Peer: (r + 1) % 3}))
	}
	rep := explained(t, dumpsOf(t, comms, 0, 1, 2)...)
	require.Len(t, rep.Findings, 1)
	require.Equal(t, "ranks wait for each other: rank 0 waits for rank 1 in recv #1 of 5 elements of int32 from 1, "+
		"rank 1 waits for rank 2 in recv #1 of 5 elements of int32 from 2, rank 2 waits for rank 0 in recv #1 of 5 elements of int32 from 0", rep.Findings[0])
	cancel()
	for _, h := range hs {
		<-h.Done()
	}
}

// A failed call leaves a file on every rank, also on the one that comes late.
func TestDumpAtFailure(t *testing.T) {
	dir := t.TempDir()
	comms := localBroken(t, 3, Config{DumpDir: dir, Timeout: 20 * time.Second})
	var wg sync.WaitGroup
	for r, c := range comms {
		wg.Go(func() {
			x := make([]int64, 100+r/2)
			require.ErrorIs(t, c.AllReduce(context.Background(), tensor.Of(x), tensor.Of(x), tensor.Max), ErrMismatch)
		})
	}
	wg.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	var dumps [][]byte
	for _, f := range files {
		require.Regexp(t, `gccl-[0-9a-f]{16}-rank[0-2]\.json$`, f)
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		dumps = append(dumps, b)
	}
	rep := explained(t, dumps...)
	require.Regexp(t, `^ranks disagree about call #1: ranks 0, 1: allreduce #1\(int64\[100\], max\) by \S+; rank 2: allreduce #1\(int64\[101\], max\)`, rep.Findings[0])
	rep = explained(t, dumps[:2]...)
	require.Contains(t, rep.Findings[0], "rank 2 is absent: it left no dump")
}

// A dump can be had while calls run, and after Close.
func TestDumpAtAnyTime(t *testing.T) {
	comms := local(t, 2, Config{Timeout: 20 * time.Second})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, c := range comms {
				d, err := recorder.Decode(c.Dump())
				require.NoError(t, err)
				require.False(t, d.Silent)
			}
		}
	})
	each(t, comms, func(c *Comm) error {
		for range 300 {
			x := make([]int32, 1000)
			if err := c.Group(context.Background(), Call{Kind: AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: tensor.Sum}, Call{Kind: Barrier}); err != nil {
				return err
			}
		}
		return nil
	})
	close(stop)
	wg.Wait()
	require.NoError(t, comms[0].Close())
	d, err := recorder.Decode(comms[0].Dump())
	require.NoError(t, err)
	require.True(t, d.Closed)
	require.Len(t, d.Calls, recorder.Len)
	require.Equal(t, uint64(600), d.Seq)
	require.Equal(t, uint64(600), d.Calls[recorder.Len-1].N)
}

func TestAbortLeavesARecord(t *testing.T) {
	dir := t.TempDir()
	comms := localBroken(t, 2, Config{DumpDir: dir})
	comms[1].Abort("enough")
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("gccl-%016x-rank1.json", comms[1].epoch)))
	require.NoError(t, err)
	require.Contains(t, string(b), "aborted: enough")
}

// Who learns of a recovery just before Close leaves no record of a failure afterwards.
func TestRecoveryHeardOfBeforeClose(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		comms, err := NewLocal(context.Background(), 2, Config{DumpDir: dir})
		require.NoError(t, err)
		comms[0].called(1, opShrink)
		for _, c := range comms {
			require.NoError(t, c.Close())
		}
		time.Sleep(2 * causeFirst)
		synctest.Wait()
		require.Nil(t, comms[0].broken.Load())
	})
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Empty(t, files)
}

// Who learns of a recovery while it closes has done what that takes when Close returns.
func TestRecoveryHeardOfDuringClose(t *testing.T) {
	late := 0
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			comms, err := NewLocal(context.Background(), 2, Config{DumpDir: dir, still: true, Spin: -1})
			require.NoError(t, err)
			comms[0].called(1, opShrink)
			time.Sleep(causeFirst)
			require.NoError(t, comms[0].Close())
			first := comms[0].broken.Load()
			left, err := filepath.Glob(filepath.Join(dir, "*"))
			require.NoError(t, err)
			synctest.Wait()
			then, err := filepath.Glob(filepath.Join(dir, "*"))
			require.NoError(t, err)
			if comms[0].broken.Load() != first || len(then) != len(left) {
				late++
			}
			require.NoError(t, comms[1].Close())
		})
	}
	require.Zero(t, late)
}

// A dump that somebody asked for, and that is late, does not take the place of a failure's record.
func TestFailureRecordStays(t *testing.T) {
	dir := t.TempDir()
	comms := localBroken(t, 2, Config{DumpDir: dir})
	late := comms[0].snapshot("signal")
	comms[0].Abort("enough")
	comms[0].writeDump(late)
	files, err := filepath.Glob(filepath.Join(dir, "*-rank0.json"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	d, err := recorder.Decode(b)
	require.NoError(t, err)
	require.Equal(t, "failure", d.Why)
}

// The flight recorder keeps what it prints of a call, and not the call's plan.
func TestRecordKeepsNoPlans(t *testing.T) {
	comms := local(t, 2, Config{})
	const calls = 20
	var gone atomic.Int32
	for i := range calls {
		each(t, comms, func(c *Comm) error {
			all := make([]byte, 2*i+3) // an uneven call of another shape each time, whose plan is kept for the next one only
			mine := make([]byte, i+1+c.rank)
			err := c.AllGatherV(t.Context(), tensor.Of(all), tensor.Of(mine), []int{i + 1, i + 2})
			if c.rank == 0 {
				runtime.AddCleanup(c.recent[AllGather].plan, func(int) { gone.Add(1) }, 0)
			}
			return err
		})
	}
	require.Eventually(t, func() bool { runtime.GC(); return gone.Load() >= calls-2 }, testTime, time.Millisecond)
	d := comms[0].dump("test")
	require.Len(t, d.Calls, calls)
	require.Equal(t, 2*calls+1, d.Calls[calls-1].Bytes)
}
