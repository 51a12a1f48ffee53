//go:build linux

package shm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
)

// childVariable names what a process that the tests start from their own binary plays.
const childVariable = "GCCL_SHM_TEST_CHILD"

// card is what parent and child tell each other first.
type card struct {
	Address []byte
	Region  rdma.RemoteRegion
	Error   string
}

// child is a process that plays one of the parts below.
type child struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	card card
}

// startChild starts a child that plays a part. If the system refuses what special asks for, the test is
// skipped.
func startChild(t testing.TB, part string, special func(*syscall.SysProcAttr)) *child {
	t.Helper()
	// Through /proc, so that another user needs no way to the file.
	c := &child{Cmd: exec.Command("/proc/self/exe")}
	c.Env = append(os.Environ(), childVariable+"="+part)
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{}
	if special != nil {
		special(c.SysProcAttr)
	}
	var err error
	c.in, err = c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	err = c.Start()
	if special != nil && err != nil {
		t.Skipf("start: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	c.out = json.NewDecoder(bufio.NewReader(out))
	require.NoError(t, c.out.Decode(&c.card))
	return c
}

// meet tells the child whom to connect to, and connects.
func (c *child) meet(t testing.TB, s *side, mem rdma.Region) {
	t.Helper()
	c.sendCard(t, s, mem)
	require.NoError(t, s.Connect(soon(t), c.card.Address))
}

func (c *child) sendCard(t testing.TB, s *side, mem rdma.Region) {
	t.Helper()
	require.NoError(t, json.NewEncoder(c.in).Encode(card{Address: s.Address(), Region: mem.Remote()}))
}

const (
	childMemory = 1 << 20
	lentBytes   = 100_000
)

// playChild plays a part until standard input ends, and returns the exit status.
func playChild(part string) int {
	if err := play(part); err != nil {
		fmt.Fprintf(os.Stderr, "child %s: %v\n", part, err)
		return 1
	}
	return 0
}

func play(part string) error {
	dev, err := New(Options{})
	if err != nil {
		return err
	}
	q, err := dev.NewCQ(64, nil)
	if err != nil {
		return err
	}
	ep, err := dev.NewEndpoint(q, rdma.EndpointOptions{})
	if err != nil {
		return err
	}
	mem, err := dev.Alloc(childMemory, "child")
	if err != nil {
		return err
	}
	tell := json.NewEncoder(os.Stdout)
	if err := tell.Encode(card{Address: ep.Address(), Region: mem.Remote()}); err != nil {
		return err
	}
	in := json.NewDecoder(os.Stdin)
	var parent card
	if err := in.Decode(&parent); err != nil {
		return nil // the parent wanted no more than the card
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := ep.Connect(ctx, parent.Address); err != nil {
		return tell.Encode(card{Error: err.Error()})
	}
	theirs, err := ep.(rdma.LoadStore).Map(ctx, parent.Region)
	if err != nil {
		return err
	}
	if err := tell.Encode(card{}); err != nil {
		return err
	}
	switch part {
	case "idle":
	case "scribble": // writes at once and for ever, until it is killed
		src, err := dev.Register(make([]byte, 4096))
		if err != nil {
			return err
		}
		for i := uint32(0); ; i++ {
			w := rdma.Write{Local: src.Bytes(), Region: src, Remote: parent.Region, HasImm: i%2 == 0, Imm: i}
			if _, err := ep.Post([]rdma.Write{w}); err != nil {
				return nil
			}
		}
	case "lend": // says where it has lentBytes
		lent := bytes.Repeat([]byte{42}, lentBytes)
		hostmem.Word64(theirs, 0).Store(uint64(hostmem.Addr(lent)))
		defer runtime.KeepAlive(lent)
	case "spin": // answers each count in its first word in the parent's, spinning
		mine, back := hostmem.Word64(mem.Bytes(), 0), hostmem.Word64(theirs, 0)
		for last := uint64(0); ; {
			now := mine.Load()
			if now == ^uint64(0) {
				break
			}
			if now != last {
				back.Store(now)
				last = now
			}
		}
	case "sleep": // the same, asleep on the bell
		mine, back := hostmem.Word64(mem.Bytes(), 0), hostmem.Word64(theirs, 0)
		for last := uint64(0); ; {
			now := mine.Load()
			if now == ^uint64(0) {
				break
			}
			if now != last {
				back.Store(now)
				ep.(rdma.LoadStore).Signal()
				last = now
				continue
			}
			dev.Bell().Arm()
			if mine.Load() != last {
				dev.Bell().Disarm()
				continue
			}
			dev.Bell().Sleep(time.Second)
		}
	default:
		return fmt.Errorf("no such part")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return dev.Close()
}
