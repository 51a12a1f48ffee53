//go:build linux

package shm

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
)

func openFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

// devShm lists /dev/shm, which this package must not touch.
func devShm(t testing.TB) []string {
	t.Helper()
	files, err := os.ReadDir("/dev/shm")
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	names := []string{}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

// Whenever a peer is killed, its peer hears of it, is told how it died, and nothing stays behind.
func TestPeerKilledAtRandomMoments(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	shm := devShm(t)
	var noticed []time.Duration
	for round := range rounds {
		s := newSide(t, rdma.EndpointOptions{})
		mem := s.alloc(t, childMemory)
		before := openFiles(t)
		c := startChild(t, "scribble", nil)
		c.meet(t, s, mem)
		for range rand.IntN(300) {
			s.poll(t, 1)
		}
		for range rand.IntN(2000) {
			runtime.Gosched()
		}
		start := time.Now()
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		err := <-s.lost
		noticed = append(noticed, time.Since(start))
		require.ErrorIs(t, err, rdma.ErrPeerLost)
		var pe *PeerError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, c.Process.Pid, pe.PID)
		require.Contains(t, pe.State, "killed by signal 9", "round %d", round)
		_, err = s.Post([]rdma.Write{{}})
		require.ErrorIs(t, err, rdma.ErrPeerLost)
		mem.Bytes()[0]++ // memory of one's own stays
		_ = c.Wait()
		require.NoError(t, s.Close())
		_ = c.in.Close()
		require.Eventually(t, func() bool { return openFiles(t) <= before }, 10*time.Second, time.Millisecond)
	}
	require.Equal(t, shm, devShm(t))
	sockets, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	t.Logf("loss noticed after %v; %d sockets of this package open", noticed, strings.Count(string(sockets), "@gccl-"))
}

// Both sides sleep on their bells between any two counts: a lost wake-up shows as a late sleep.
func TestNoWakeUpIsLostBetweenProcesses(t *testing.T) {
	counts := uint64(3000)
	if testing.Short() {
		counts = 300
	}
	s := newSide(t, rdma.EndpointOptions{})
	mem := s.alloc(t, childMemory)
	c := startChild(t, "sleep", nil)
	c.meet(t, s, mem)
	theirs, err := s.Map(soon(t), c.card.Region)
	require.NoError(t, err)
	mine, count := hostmem.Word64(mem.Bytes(), 0), hostmem.Word64(theirs, 0)
	bell := s.dev.Bell()
	for i := uint64(1); i <= counts; i++ {
		count.Store(i)
		s.Signal()
		for range rand.IntN(3) {
			runtime.Gosched()
		}
		for mine.Load() != i {
			bell.Arm()
			if mine.Load() == i {
				bell.Disarm()
				break
			}
			const patience = 20 * time.Second
			start := time.Now()
			bell.Sleep(patience)
			require.Less(t, time.Since(start), patience, "the ring for %d was lost", i)
		}
	}
	count.Store(^uint64(0))
	s.Signal()
}

func TestOtherNetworkNamespaceIsNamed(t *testing.T) {
	s := newSide(t, rdma.EndpointOptions{})
	mem := s.alloc(t, 1)
	c := startChild(t, "idle", func(a *syscall.SysProcAttr) { a.Cloneflags = syscall.CLONE_NEWNET })
	err := s.Connect(soon(t), c.card.Address)
	require.ErrorIs(t, err, rdma.ErrUnavailable)
	require.ErrorContains(t, err, "another network namespace")
	c.sendCard(t, s, mem)
	var answer card
	require.NoError(t, c.out.Decode(&answer))
	require.Contains(t, answer.Error, "another network namespace")
}

func TestOtherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	s := newSide(t, rdma.EndpointOptions{})
	mem := s.alloc(t, 1)
	c := startChild(t, "idle", func(a *syscall.SysProcAttr) { a.Credential = &syscall.Credential{Uid: 65534, Gid: 65534} })
	err := s.Connect(soon(t), c.card.Address)
	require.ErrorIs(t, err, rdma.ErrUnavailable)
	require.ErrorContains(t, err, "is user 65534, this is user 0")
	c.sendCard(t, s, mem)
	var answer card
	require.NoError(t, c.out.Decode(&answer))
	require.Contains(t, answer.Error, "is user 0, this is user 65534")
}

// The address of a process that is gone is refused at once, not when the context ends.
func TestConnectToADeadProcess(t *testing.T) {
	s := newSide(t, rdma.EndpointOptions{})
	c := startChild(t, "idle", nil)
	require.NoError(t, c.Process.Kill())
	_ = c.Wait()
	err := s.Connect(t.Context(), c.card.Address)
	require.ErrorIs(t, err, rdma.ErrPeerLost)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d is gone", c.Process.Pid))
}
