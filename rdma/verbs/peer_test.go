package verbs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

const (
	// peerVariable makes the test binary a peer: its value is where the tests listen.
	peerVariable = "GCCL_VERBS_PEER"
	// hostsVariable has the tests wait for the peer of another host there, instead of starting one.
	hostsVariable = "GCCL_VERBS_LISTEN"

	slots    = 4
	slotSize = 64 << 10
	patience = 60 * time.Second
)

// intro is what each side says first. Wait delays the peer's Connect.
type intro struct {
	Address []byte
	Remote  rdma.RemoteRegion
	Wait    time.Duration
}

// end is one side of a connection under test.
type end struct {
	dev    *verbs.Device
	cq     rdma.CQ
	ep     rdma.Endpoint
	mem    rdma.Region
	remote rdma.RemoteRegion
	lost   chan error
	conn   net.Conn
	json   *json.Decoder

	scratch []rdma.Completion // of drain
	silence time.Duration     // what drain bears; 0: any
	times   []time.Duration   // of a ping-pong
}

func newEnd(o verbs.Options, conn net.Conn) (*end, error) {
	d, err := verbs.Open(o)
	if err != nil {
		return nil, err
	}
	e := &end{dev: d, lost: make(chan error, 1), conn: conn}
	if conn != nil {
		e.json = json.NewDecoder(conn)
	}
	if e.cq, err = d.NewCQ(256, nil); err != nil {
		return nil, err
	}
	if e.ep, err = d.NewEndpoint(e.cq, rdma.EndpointOptions{OnLost: func(err error) { e.lost <- err }}); err != nil {
		return nil, err
	}
	e.mem, err = d.Alloc(2*slots*slotSize, "verbs test")
	return e, err
}

func (e *end) tell(v any) error { return json.NewEncoder(e.conn).Encode(v) }

func (e *end) introduce(wait time.Duration) (intro, error) {
	var theirs intro
	if err := e.tell(intro{e.ep.Address(), e.mem.Remote(), wait}); err != nil {
		return theirs, err
	}
	err := e.json.Decode(&theirs)
	e.remote = theirs.Remote
	return theirs, err
}

// payload describes the signaled write of message i into its slot.
func (e *end) payload(i int) rdma.Write {
	at := i % slots * slotSize
	return rdma.Write{
		ID: uint64(i), Local: e.mem.Bytes()[at : at+slotSize], Region: e.mem, Remote: e.remote, Offset: uint64(at),
		Imm: uint32(i), HasImm: true, Signaled: true,
	}
}

// servePeer plays peers, one after the other, until nobody listens any more.
func servePeer(addr string) error {
	for {
		var conn net.Conn
		var err error
		for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if conn, err = net.DialTimeout("tcp", addr, time.Second); err == nil || time.Now().After(until) {
				break
			}
		}
		if err != nil {
			return nil // the tests are over
		}
		if err := playPeer(conn); err != nil {
			return err
		}
	}
}

// playPeer checks each message's bytes and acknowledges it by an empty write, and follows orders.
func playPeer(conn net.Conn) error {
	defer conn.Close()
	o := quick
	if ds, err := verbs.OpenAll(o); err == nil { // the last port, so that a wire is between the ends
		o.HCA = "=" + ds[len(ds)-1].Attr().Name
		for _, d := range ds {
			_ = d.Close()
		}
	}
	e, err := newEnd(o, conn)
	if err != nil {
		return err
	}
	defer e.dev.Close()
	theirs, err := e.introduce(0)
	if err != nil {
		return nil // the test ended before it began
	}
	time.Sleep(theirs.Wait)
	if err := e.ep.Connect(context.Background(), theirs.Address); err != nil {
		return err
	}
	orders := make(chan string)
	go func() {
		defer close(orders)
		for {
			var order string
			if e.json.Decode(&order) != nil {
				return
			}
			orders <- order
		}
	}()
	cs := make([]rdma.Completion, 16)
	for {
		select {
		case order, more := <-orders:
			if !more {
				return nil
			}
			e.follow(order)
		default:
		}
		n, err := e.cq.Poll(cs)
		if err != nil {
			return err
		}
		for _, c := range cs[:n] {
			if c.Kind != rdma.Received {
				continue
			}
			at := int(c.Imm) % slots * slotSize
			mem := e.mem.Bytes() // nil once deregistered
			for _, x := range mem[min(at, len(mem)):min(at+c.Len, len(mem))] {
				if x != byte(c.Imm) {
					return fmt.Errorf("message %d: byte %d", c.Imm, x)
				}
			}
			_, _ = e.ep.Post([]rdma.Write{{Imm: c.Imm, HasImm: true, Signaled: true}})
		}
		if n == 0 {
			runtime.Gosched()
		}
	}
}

func (e *end) follow(order string) {
	switch order {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "stop": // for four seconds
		_ = exec.Command("sh", "-c", fmt.Sprintf("sleep 4; kill -CONT %d", os.Getpid())).Start()
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "deregister":
		_ = e.mem.Close()
	case "break":
		verbs.ForceError(e.ep)
	case "down":
		_ = exec.Command("ip", "link", "set", "eth0", "down").Run()
	case "up":
		_ = exec.Command("ip", "link", "set", "eth0", "up").Run()
	case "crash":
		_ = exec.Command("vmcrash").Run()
	}
}

// withPeer connects to a peer in a process of its own, or on the other host.
func withPeer(t *testing.T, wait time.Duration) *end {
	t.Helper()
	listen := os.Getenv(hostsVariable)
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", listen)
	require.NoError(t, err)
	defer l.Close()
	if os.Getenv(hostsVariable) == "" {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), peerVariable+"="+l.Addr().String())
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	require.NoError(t, l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	conn, err := l.Accept()
	require.NoError(t, err)
	o := quick
	o.HCA = "=" + ports(t)[0]
	e, err := newEnd(o, conn)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.dev.Close())
		_ = conn.Close()
	})
	theirs, err := e.introduce(wait)
	require.NoError(t, err)
	require.NoError(t, e.ep.Connect(t.Context(), theirs.Address))
	return e
}

// stream sends messages, a window of slots at a time, until n are acknowledged (or for ever, if n
// is 0), and returns the first error that it meets and the longest time between acknowledgements.
func (e *end) stream(n int, acked *atomic.Int64) (gap time.Duration, err error) {
	cs := make([]rdma.Completion, 16)
	sent, got := 0, 0
	last := time.Now()
	for n == 0 || got < n {
		for sent-got < slots && (n == 0 || sent < n) {
			w := e.payload(sent)
			for i := range w.Local {
				w.Local[i] = byte(sent)
			}
			if k, err := e.ep.Post([]rdma.Write{w}); err != nil || k == 0 {
				if err != nil {
					return gap, fmt.Errorf("post: %w", err)
				}
				break
			}
			sent++
		}
		k, err := e.cq.Poll(cs)
		if err != nil {
			return gap, err
		}
		for _, c := range cs[:k] {
			switch {
			case c.Err != nil:
				return gap, c.Err
			case c.Kind == rdma.Received:
				if c.Imm != uint32(got) {
					return gap, fmt.Errorf("acknowledgement %d instead of %d", c.Imm, got)
				}
				got++
				acked.Store(int64(got))
				gap = max(gap, time.Since(last))
				last = time.Now()
			}
		}
		if k == 0 {
			if len(e.lost) > 0 { // with nothing posted, only OnLost tells
				err := <-e.lost
				e.lost <- err
				return gap, err
			}
			if time.Since(last) > patience {
				return gap, errors.New("no progress")
			}
			runtime.Gosched()
		}
	}
	return gap, nil
}

// inLab skips tests that change the machine elsewhere.
func inLab(t *testing.T) {
	t.Helper()
	if os.Getenv("RXELAB") == "" {
		t.Skip("changes the machine: runs in a VM of rdma/verbs/lab/rxelab only")
	}
}

func sh(t *testing.T, command string) {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	require.NoError(t, err, "%s: %s", command, strings.TrimSpace(string(out)))
}
