package collective_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// workInit makes a communicator over and over. Nothing of one may be left after it.
func workInit(ctx context.Context) error {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	var files, goroutines int
	for round := range 5 {
		cfg.Bootstrap.Epoch = uint64(round)
		c, err := collective.New(ctx, cfg)
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		x := []int64{1}
		if err := c.AllReduce(ctx, tensor.Of(x), tensor.Of(x), tensor.Sum); err != nil || x[0] != int64(c.Size()) {
			return fmt.Errorf("round %d: sum %d: %w", round, x[0], err)
		}
		if err := c.Close(); err != nil {
			return err
		}
		if round == 0 {
			files, goroutines = held(1<<30, 1<<30)
		}
	}
	f, g := held(files, goroutines)
	if f > files || g > goroutines {
		stacks := make([]byte, 1<<20)
		return fmt.Errorf("%d files and %d goroutines are open, %d and %d after the first round\n%s",
			f, g, files, goroutines, stacks[:runtime.Stack(stacks, true)])
	}
	fmt.Println("all rounds")
	return nil
}

// held counts open files and goroutines, once there are no more than expected or some seconds have gone.
func held(files, goroutines int) (f, g int) {
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		entries, _ := os.ReadDir("/proc/self/fd")
		f, g = len(entries), runtime.NumGoroutine()
		if f <= files && g <= goroutines || time.Now().After(deadline) {
			return f, g
		}
	}
}

// workStrangers finds every listening port of its host again and again, and bothers it, until it is
// killed.
func workStrangers(ctx context.Context) error {
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	old, err := oldHandshake(ctx)
	if err != nil {
		return err
	}
	what := [][]byte{[]byte("GET"), noise, nil, old, append([]byte("gcclTCP\x01"), noise[:56]...)}
	limit := make(chan struct{}, 64)
	for n := 0; ; {
		ports, err := listening()
		if err != nil {
			return err
		}
		for _, to := range ports {
			for _, b := range what {
				limit <- struct{}{}
				go func() {
					defer func() { <-limit }()
					bother(to, b)
				}()
				if n++; n%100 == 0 {
					fmt.Println("struck", n)
				}
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// bother says something to a port, and listens for a moment.
func bother(to netip.AddrPort, b []byte) {
	c, err := net.DialTimeout("tcp", to.String(), time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = c.Write(b)
	_, _ = io.Copy(io.Discard, c)
}

// oldHandshake is what a rank of another job says first to a root.
func oldHandshake(ctx context.Context) ([]byte, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		g, err := bootstrap.Connect(ctx, bootstrap.Config{Rank: 1, Size: 2, LocalSize: 2, Root: l.Addr().String(), RunID: "old"})
		if err == nil {
			_ = g.Close()
		}
	})
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	b := make([]byte, 80)
	_, err = io.ReadFull(c, b)
	return b, err
}

// listening returns where something listens in this network namespace.
func listening() (list []netip.AddrPort, err error) {
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(b), "\n") {
			f := strings.Fields(line)
			if len(f) < 4 || f[3] != "0A" {
				continue
			}
			text, port, _ := strings.Cut(f[1], ":")
			ip, err1 := hex.DecodeString(text)
			var p uint16
			if _, err2 := fmt.Sscanf(port, "%X", &p); err1 != nil || err2 != nil {
				return nil, fmt.Errorf("%s: %q", file, line)
			}
			for i := 0; i < len(ip); i += 4 { // words of the machine, which is little-endian
				slices.Reverse(ip[i : i+4])
			}
			addr, _ := netip.AddrFromSlice(ip)
			if addr = addr.Unmap(); addr.IsUnspecified() {
				addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			}
			list = append(list, netip.AddrPortFrom(addr, p))
		}
	}
	return list, nil
}
