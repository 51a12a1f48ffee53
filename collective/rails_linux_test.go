package collective

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/tensor"
)

// acceptedOn lists this process's connections whose own port is in a range.
func acceptedOn(first, last int) (fds []int) {
	for fd := 3; fd < 1024; fd++ {
		own, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		if _, err := unix.Getpeername(fd); err != nil {
			continue
		}
		switch a := own.(type) {
		case *unix.SockaddrInet4:
			if a.Port >= first && a.Port <= last {
				fds = append(fds, fd)
			}
		case *unix.SockaddrInet6:
			if a.Port >= first && a.Port <= last {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}

// Three of the four sockets of a pair of ranks fail one after the other while the ranks reduce and send: all
// results are right.
func TestSocketsFailUnderCalls(t *testing.T) {
	const first, last = 29200, 29299
	comms := newOverTCP(t, 2, map[string]string{"GCCL_TCP_SOCKETS": "4"}, fmt.Sprintf("%d-%d", first, last))
	ctx := t.Context()
	round := func(n int) {
		each(t, comms, func(c *Comm) error {
			for i := range 6 {
				x := make([]float32, n+i)
				for k := range x {
					x[k] = float32(c.Rank()*3 + k%7)
				}
				if err := c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil {
					return err
				}
				for k := range x {
					if x[k] != float32(3+k%7*2) {
						return fmt.Errorf("rank %d: element %d is %v", c.Rank(), k, x[k])
					}
				}
				y := []float32{float32(i)}
				var err error
				if c.Rank() == i&1 {
					err = c.Send(ctx, tensor.Of(y), 1-c.Rank())
				} else if err = c.Recv(ctx, tensor.Of(y), 1-c.Rank()); err == nil && y[0] != float32(i) {
					err = fmt.Errorf("rank %d received %v instead of %d", c.Rank(), y[0], i)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	round(1000)
	for left := 4; left > 1; left-- {
		open := acceptedOn(first, last)
		require.Len(t, open, left, "sockets")
		stop := time.AfterFunc(time.Duration(left)*time.Millisecond, func() { _ = unix.Shutdown(open[left&1], unix.SHUT_RDWR) })
		for limit := time.Now().Add(30 * time.Second); len(acceptedOn(first, last)) == left; {
			require.True(t, time.Now().Before(limit), "the socket is not given up")
			for _, n := range []int{1, 3000, 300_000} {
				round(n)
			}
		}
		stop.Stop()
	}
	round(1000)
}
