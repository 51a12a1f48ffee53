package collective_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

// workRegistered runs a sample of the table on registered tensors.
func workRegistered(_ context.Context, c *collective.Comm) error {
	calls, err := collective.RunRegistered(c)
	if err == nil && calls < 300 {
		err = fmt.Errorf("only %d calls", calls)
	}
	return err
}

// workReproducible holds every candidate of reproducible mode against the left fold.
func workReproducible(_ context.Context, c *collective.Comm) error {
	calls, err := collective.RunReproducible(c, 1, 900)
	if err == nil && calls < 100 {
		err = fmt.Errorf("only %d calls", calls)
	}
	return err
}

func TestRegisteredInProcesses(t *testing.T) {
	for _, n := range []int{2, 4, 5} {
		var out output
		j := job("registered", n, &out)
		j.Env = append(j.Env, "GCCL_PROVIDER=shm")
		require.NoError(t, j.Run(t.Context()), "%d ranks:\n%s", n, &out)
	}
}

// Reproducible results are the same left fold over all providers, channels and buffers.
func TestReproducibleInProcesses(t *testing.T) {
	for _, env := range []string{
		"GCCL_PROVIDER=shm",
		"GCCL_PROVIDER=shm GCCL_NCHANNELS=3 GCCL_BUFFSIZE=4K GCCL_SLOTS=4",
		"GCCL_PROVIDER=tcp GCCL_NCHANNELS=1",
	} {
		var out output
		j := job("reproducible", 3, &out)
		j.Env = append(j.Env, "GCCL_REPRODUCIBLE=1")
		j.Env = append(j.Env, strings.Fields(env)...)
		require.NoError(t, j.Run(t.Context()), "%s:\n%s", env, &out)
	}
}
