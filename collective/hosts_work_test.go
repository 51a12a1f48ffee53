package collective_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// Four hosts of two ranks.
const (
	labHosts = 4
	labRanks = 8
)

// Sizes of AllReduces across hosts.
const labSizes = 3

var labMiB = [labSizes]int{1, 16, 64}

// labTries is how often each is measured; the shortest time counts.
const labTries = 4

// crossing is how many bytes of an AllReduce each of the lab's hosts must send, and receive: its part
// of the sum to the others, and theirs back.
func crossing(mib int) float64 { return 2 * (labHosts - 1.0) / labHosts * float64(mib<<20) }

// workReduce times AllReduces; rank 0 prints how long the slowest rank took.
func workReduce(ctx context.Context, c *collective.Comm) error {
	for i, mib := range labMiB {
		x := make([]float32, mib<<18)
		call := collective.Call{Kind: collective.AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: tensor.Max}
		info, err := c.Plan(call)
		if err != nil {
			return err
		}
		best, err := bestOf(ctx, c, func() error { return c.AllReduce(ctx, call.Dst, call.Src, call.Op) })
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Println("reduce", i, best.Nanoseconds(), info.Algorithm)
		}
	}
	return nil
}

// bestOf is the shortest time of some, each that of the slowest rank.
func bestOf(ctx context.Context, c *collective.Comm, f func() error) (time.Duration, error) {
	var best time.Duration
	for range labTries {
		if err := c.Barrier(ctx); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		took := []int64{int64(time.Since(start))}
		if err := c.AllReduce(ctx, tensor.Of(took), tensor.Of(took), tensor.Max); err != nil {
			return 0, err
		}
		if d := time.Duration(took[0]); best == 0 || d < best {
			best = d
		}
	}
	return best, nil
}

// ringEnv tells workRing the addresses of the hosts but for their last number.
const ringEnv = "GCCL_TEST_RING"

// workRing sends as many bytes as an AllReduce must to the next host while the previous one sends
// here, through plain sockets; each rank prints how long that took.
func workRing(ctx context.Context, c *collective.Comm) error {
	addr := func(rank int) string {
		return net.JoinHostPort(os.Getenv(ringEnv)+strconv.Itoa(rank+1), "29500")
	}
	listener, err := net.Listen("tcp", addr(c.Rank()))
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	out, err := net.Dial("tcp", addr((c.Rank()+1)%c.Size()))
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := listener.Accept()
	if err != nil {
		return err
	}
	defer in.Close()
	chunk, sink := make([]byte, 1<<20), make([]byte, 1<<20)
	for i, mib := range labMiB {
		total := int(crossing(mib))
		best, err := bestOf(ctx, c, func() error {
			sent := make(chan error, 1)
			go func() {
				for left := total; left > 0; {
					n, err := out.Write(chunk[:min(left, len(chunk))])
					if left -= n; err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			for left := total; left > 0; {
				n, err := io.ReadFull(in, sink[:min(left, len(sink))])
				if left -= n; err != nil {
					return err
				}
			}
			return <-sent
		})
		if err != nil {
			return err
		}
		fmt.Println("ring", i, best.Nanoseconds(), "sockets")
	}
	return nil
}
