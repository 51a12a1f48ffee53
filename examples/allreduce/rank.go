package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gccl/gccl/collective"
)

// failure is an error that all ranks have heard of. The rank to blame reports it.
type failure struct {
	blame int
	text  string
}

func (f *failure) Error() string { return f.text }

// process is the life of a rank that is a process. It returns the exit code.
func process(ctx context.Context, o *options) int {
	rank, err := join(ctx, o)
	if err == nil {
		return 0
	}
	if speaks(ctx, rank, err) {
		complain(os.Stderr, err)
	}
	return 1
}

// join finds the other ranks, does the work and leaves.
func join(ctx context.Context, o *options) (rank int, err error) {
	cfg, err := collective.ConfigFromEnv(os.LookupEnv)
	rank = cfg.Bootstrap.Rank
	if err != nil {
		return rank, err
	}
	cfg.Timeout = o.Timeout
	if o.Provider != "auto" { // GCCL_PROVIDER has its say otherwise
		cfg.Provider = o.Provider
	}
	meet, cancel := context.WithTimeout(ctx, o.Timeout)
	comm, err := collective.New(meet, cfg)
	cancel()
	if err != nil {
		return rank, err
	}
	err = work(ctx, comm, o, os.Stdout)
	return rank, errors.Join(err, comm.Close())
}

// work is what a rank does once it is connected. out takes whole lines.
func work(ctx context.Context, comm *collective.Comm, o *options, out io.Writer) error {
	if o.In != "" {
		return reduce(ctx, comm, o, out)
	}
	return train(ctx, comm, o, out)
}

// Ranks fail together, and one line shall say why: the one of the rank that failed first. A rank that
// fails because of another leaves the word to that, or to the launcher, which ends all when a rank
// has ended; only if nobody ends it for this long does it speak.
const (
	waitForCulprit = 3 * time.Second
	waitForRank0   = 300 * time.Millisecond // where all ranks find the same fault
)

// speaks reports whether this rank is to report its error, after waiting for those who come first.
func speaks(ctx context.Context, rank int, err error) bool {
	wait := waitForRank0 * time.Duration(min(rank, 4))
	var f *failure
	switch {
	case ctx.Err() != nil:
		return false
	case errors.As(err, &f):
		if f.blame == rank {
			return true
		}
		wait = waitForCulprit
	case errors.Is(err, collective.ErrPeerLost), errors.Is(err, collective.ErrGaveUp):
		wait = waitForCulprit
	}
	if wait == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return f == nil
	}
}

// blame makes a failure of a rank.
func blame(rank int, format string, args ...any) error {
	return &failure{rank, fmt.Sprintf("rank %d: ", rank) + fmt.Sprintf(format, args...)}
}
