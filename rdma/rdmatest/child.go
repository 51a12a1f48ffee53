package rdmatest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

// Opener opens a device that reaches the devices that it opens in other processes of this host.
type Opener func() (rdma.Device, error)

// childVariable marks a process as a child of RunProcesses.
const childVariable = "GCCL_RDMATEST_CHILD"

// Main is for the TestMain of a provider that calls RunProcesses, which starts the test binary once
// more as the peer: there Main plays the peer, else it runs the tests. It returns the exit status.
//
//	func TestMain(m *testing.M) { os.Exit(rdmatest.Main(m, open)) }
func Main(m *testing.M, open Opener) int {
	if os.Getenv(childVariable) == "" {
		return m.Run()
	}
	if err := playChild(open); err != nil {
		fmt.Fprintln(os.Stderr, "rdmatest: peer process:", err)
		return 1
	}
	return 0
}

// hello is the first message of each process to the other: what Connect and writes need.
type hello struct {
	Address []byte
	Remote  rdma.RemoteRegion
}

// order is what the test asks of its peer process; each is answered by one report.
type order struct {
	Do                  string // a key of the table in playChild
	Window, Size, Total int    // stream
	Seed                uint64
	Quiet               bool
	Rounds              uint64 // bells
}

func (o order) stream() stream {
	return stream{window: o.Window, size: o.Size, total: uint32(o.Total), seed: o.Seed, peer: o.Seed + 1<<40, quiet: o.Quiet}
}

// report answers an order.
type report struct {
	Error string
}

// childDepth is the RecvDepth of both ends.
const childDepth = 256

// playChild is the peer process: it connects to its parent and follows orders until its standard
// input ends, which it also does when the parent dies.
func playChild(open Opener) error {
	dev, err := open()
	if err != nil {
		return err
	}
	s, err := newSide(dev, rdma.EndpointOptions{RecvDepth: childDepth})
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	fill(s.mem.Bytes(), 11)
	if err := out.Encode(hello{s.ep.Address(), s.mem.Remote()}); err != nil {
		return err
	}
	var parent hello
	if err := in.Decode(&parent); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	if err := s.ep.Connect(ctx, parent.Address); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	orders := make(chan order)
	go func() {
		for {
			var o order
			if in.Decode(&o) != nil {
				os.Exit(0) // the parent is done with this process, or dead
			}
			orders <- o
		}
	}()
	todo := map[string]func(order) error{
		"nothing": func(order) error { return nil },
		"exit":    func(order) error { os.Exit(0); return nil },
		"close":   func(order) error { return dev.Close() },
		"stream":  func(o order) error { return o.stream().run(s, parent.Remote) },
		"flood":   func(order) error { return s.flood(parent.Remote) },
		"lost":    func(order) error { return s.reportLoss() },
		"bells":   func(o order) error { return s.playBells(ctx, parent.Remote, o.Rounds, false) },
	}
	for o := range orders {
		r := report{}
		if err := todo[o.Do](o); err != nil {
			r.Error = err.Error()
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// flood starts to write into the peer's region without an end, and returns when it is under way.
func (s *side) flood(remote rdma.RemoteRegion) error {
	underWay := make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			err := s.post(rdma.Write{Local: s.mem.Bytes()[:64<<10], Region: s.mem, Remote: remote, Signaled: true})
			if err != nil || i == 100 {
				underWay <- err
			}
			if err != nil {
				return
			}
		}
	}()
	return <-underWay
}

// reportLoss waits for OnLost and checks it.
func (s *side) reportLoss() error {
	err := s.pollUntil("OnLost", func() bool { return len(s.lost.all()) > 0 })
	if errs := s.lost.all(); err == nil && (len(errs) != 1 || !errors.Is(errs[0], rdma.ErrPeerLost)) {
		err = fmt.Errorf("OnLost called with %v", errs)
	}
	return err
}

// playBells counts up in turn with the peer, in words of the two regions that each stores into the
// other's memory, asleep on the bell between two turns.
func (s *side) playBells(ctx context.Context, remote rdma.RemoteRegion, rounds uint64, first bool) error {
	ep, ok := s.ep.(rdma.LoadStore)
	if !ok {
		return errors.New("no load/store access")
	}
	m, err := ep.Map(ctx, remote)
	if err != nil {
		return err
	}
	bell := s.dev.(rdma.BellDevice).Bell()
	own, peers := word(s.mem.Bytes(), memSize-64), word(m, memSize-64)
	turn := func(w *atomic.Uint64, v uint64) {
		w.Store(v)
		ep.Signal()
	}
	for v := uint64(1); v <= rounds; v++ {
		if first {
			turn(peers, v)
		}
		if err := waitWord(bell, own, v); err != nil {
			return err
		}
		if !first {
			turn(peers, v)
		}
	}
	return nil
}

// child is the parent's view of its peer process.
type child struct {
	*hello
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// startChild starts the peer process and reads its hello. It is ended with the test.
func startChild(t *testing.T) *child {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	c := &child{hello: &hello{}, cmd: exec.Command(exe)}
	c.cmd.Env = append(os.Environ(), childVariable+"=1")
	c.cmd.Stderr = os.Stderr
	c.in, err = c.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := c.cmd.StdoutPipe()
	require.NoError(t, err)
	c.out = json.NewDecoder(stdout)
	require.NoError(t, c.cmd.Start())
	t.Cleanup(c.kill)
	require.NoError(t, c.out.Decode(c.hello), "the peer process did not start")
	return c
}

// kill ends the process by SIGKILL and waits for it. It may be called again.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// tell sends an order; answer waits for its report.
func (c *child) tell(t *testing.T, o order) {
	t.Helper()
	require.NoError(t, json.NewEncoder(c.in).Encode(o))
}

func (c *child) answer(t *testing.T) {
	t.Helper()
	// A peer that hangs is killed, so that reading its report ends.
	timer := time.AfterFunc(2*Limit, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()
	var r report
	require.NoError(t, c.out.Decode(&r), "the peer process did not answer")
	require.Empty(t, r.Error, "the peer process reports")
}

func (c *child) do(t *testing.T, o order) {
	t.Helper()
	c.tell(t, o)
	c.answer(t)
}
