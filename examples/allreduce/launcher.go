package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/internal/launch"
	"golang.org/x/sync/errgroup"
)

// processes starts this program again, once per rank, and waits for the ranks. What a rank has to
// say about its failure it says itself.
func processes(ctx context.Context, o *options) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	args := append([]string{exe}, os.Args[1:]...)
	j := launch.Job{Args: append(args, "-n", "0"), Size: o.Ranks, Prefix: true}
	if o.Out == "" {
		return j.Run(ctx)
	}
	temp := o.temp()
	j.Env = []string{tempEnv + "=" + temp}
	return errors.Join(j.Run(ctx), remove(temp))
}

// goroutines runs the ranks inside this process. out is theirs.
func goroutines(ctx context.Context, o *options, out io.Writer) error {
	cfg, err := collective.ConfigFromEnv(func(string) (string, bool) { return "", false })
	if err != nil {
		return err
	}
	cfg.Timeout = o.Timeout
	meet, cancel := context.WithTimeout(ctx, o.Timeout)
	comms, err := collective.NewLocal(meet, o.Ranks, cfg)
	cancel()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	for r, c := range comms {
		g.Go(func() error {
			return work(gctx, c, o, &prefixed{mu: &mu, to: out, prefix: fmt.Sprintf("[%d] ", r)})
		})
	}
	err = g.Wait()
	for _, c := range comms {
		err = errors.Join(err, c.Close())
	}
	return err
}

// prefixed puts a rank's number before its output, which comes by whole lines.
type prefixed struct {
	mu     *sync.Mutex
	to     io.Writer
	prefix string
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := io.WriteString(p.to, p.prefix); err != nil {
		return 0, err
	}
	return p.to.Write(b)
}
