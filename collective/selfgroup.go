package collective

import (
	"context"
	"fmt"

	"github.com/gccl/gccl/tensor"
)

// selfGroup is the control plane of a communicator over its own links, for what is agreed after it
// has been made. Its user holds the turn.
type selfGroup struct{ c *Comm }

// Rank implements bootstrap.Group.
func (g selfGroup) Rank() int { return g.c.rank }

// Size implements bootstrap.Group.
func (g selfGroup) Size() int { return g.c.size }

// AllGather implements bootstrap.Group: the lengths first, then the bytes.
func (g selfGroup) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	lengths := make([]int64, g.c.size)
	own := []int64{int64(len(mine))}
	if err := g.c.run(ctx, &Call{Kind: AllGather, Dst: tensor.Of(lengths), Src: tensor.Of(own)}); err != nil {
		return nil, err
	}
	counts := make([]int, g.c.size)
	total := 0
	for r, n := range lengths {
		if n < 0 || n > maxControl {
			return nil, fmt.Errorf("%w: rank %d announces %d bytes", ErrInternal, r, n)
		}
		counts[r] = int(n)
		total += int(n)
	}
	all := make([]byte, total)
	if err := g.c.run(ctx, &Call{Kind: AllGather, Dst: tensor.Of(all), Src: tensor.Of(mine), Counts: counts}); err != nil {
		return nil, err
	}
	out := make([][]byte, g.c.size)
	for r, n := range counts {
		out[r], all = all[:n:n], all[n:]
	}
	return out, nil
}

// maxControl bounds what one rank may say.
const maxControl = 1 << 28

// Barrier implements bootstrap.Group.
func (g selfGroup) Barrier(ctx context.Context) error { return g.c.run(ctx, &Call{Kind: Barrier}) }

// Close implements bootstrap.Group; the communicator closes itself.
func (g selfGroup) Close() error { return nil }
