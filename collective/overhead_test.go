package collective_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

var overhead = flag.Bool("overhead", false, "measure what fingerprints, recorder and heartbeats cost; wants an idle machine")

func workOverhead(ctx context.Context, c *collective.Comm) error {
	return collective.Overhead(ctx, c, func(format string, a ...any) { fmt.Printf(format+"\n", a...) })
}

// What fingerprints, flight recorder and pulse cost together: two ranks, each on a core of its own as under
// gccl perf, measure themselves (collective.Overhead).
func TestOverhead(t *testing.T) {
	if !*overhead {
		t.Skip("-overhead measures")
	}
	var out output
	j := job("overhead", 2, &out)
	j.Bind, j.Prefix = true, false
	j.Env = append(j.Env, "GCCL_PROVIDER=shm")
	require.NoError(t, j.Run(t.Context()), "%s", &out)
	for l := range strings.Lines(out.String()) {
		if strings.HasPrefix(l, "|") {
			fmt.Fprint(os.Stderr, l)
		}
	}
}
