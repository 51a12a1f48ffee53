package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// NoColor is the color of a rank that is in none of the communicators that Split makes.
const NoColor = -1

// Split makes new communicators of this one's ranks: one for each color ≥ 0, its ranks ordered by
// key and then by rank here. All ranks must call it. A rank with NoColor gets nil. The new
// communicators have devices and links of their own, are closed on their own, and may outlive this one. If a rank cannot
// take part in one, or its ctx ends, Split fails on all ranks of that one, and this communicator is as before; a rank of it that is lost or
// silent meanwhile, or gives up, breaks it, as in any call.
func (c *Comm) Split(ctx context.Context, color, key int) (child *Comm, err error) {
	if color < NoColor {
		return nil, invalid("split with color %d", color)
	}
	err = c.operate(ctx, "split", func() (err error) {
		child, err = c.split(ctx, color, key)
		return err
	})
	return child, err
}

// Dup makes a communicator of the same ranks, with links and an order of calls of its own. All ranks
// must call it.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) { return c.Split(ctx, 0, c.rank) }

func (c *Comm) split(ctx context.Context, color, key int) (*Comm, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	mine := binary.LittleEndian.AppendUint64(nil, uint64(color))
	mine = binary.LittleEndian.AppendUint64(mine, uint64(key))
	all, err := selfGroup{c: c}.AllGather(ctx, mine)
	if err != nil {
		return nil, err
	}
	var members []int
	keys := make([]int, c.size)
	for r, b := range all {
		if len(b) != 16 {
			return nil, fmt.Errorf("%w: split: rank %d sent %d bytes", ErrInternal, r, len(b))
		}
		keys[r] = int(int64(binary.LittleEndian.Uint64(b[8:])))
		if int(int64(binary.LittleEndian.Uint64(b))) == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	g := &splitGroup{parent: selfGroup{c: c, begun: true}, members: members}
	var child *Comm
	if color != NoColor {
		cfg := c.cfg
		cfg.Group = g
		err = c.attended(ctx, "split", func(ctx context.Context) (err error) {
			child, err = New(ctx, cfg)
			return err
		})
	}
	if end := g.end(ctx, err); end != nil && err == nil {
		err = end
	}
	if err != nil && child != nil {
		err, child = errors.Join(err, child.Close()), nil
	}
	return child, err
}

// splitGroup is the control plane while the children are made: the parent's, filtered. All ranks of
// the parent take part in the same number of exchanges, whatever becomes of them.
type splitGroup struct {
	parent  selfGroup
	members []int
	done    int
}

// exchanges is how often New uses its group: hellos, links, a barrier. One more, the last, tells
// how it went.
const exchanges = 3

// Rank implements bootstrap.Group.
func (g *splitGroup) Rank() int { return slices.Index(g.members, g.parent.Rank()) }

// Size implements bootstrap.Group.
func (g *splitGroup) Size() int { return len(g.members) }

// AllGather implements bootstrap.Group. A blob begins with 0, or with 1 if the rank has failed and
// the rest says why.
func (g *splitGroup) AllGather(ctx context.Context, mine []byte) ([][]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx) // end tells the others
	}
	return g.exchange(ctx, append([]byte{0}, mine...))
}

func (g *splitGroup) exchange(ctx context.Context, mine []byte) ([][]byte, error) {
	g.done++
	all, err := g.parent.AllGather(ctx, mine)
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(g.members))
	for i, r := range g.members {
		b := all[r]
		if len(b) == 0 {
			return nil, fmt.Errorf("%w: split: rank %d said nothing", ErrInternal, r)
		}
		if b[0] != 0 {
			err = fmt.Errorf("split: rank %d: %s", r, b[1:])
		}
		out[i] = b[1:]
	}
	return out, err
}

// Barrier implements bootstrap.Group.
func (g *splitGroup) Barrier(ctx context.Context) error {
	_, err := g.AllGather(ctx, nil)
	return err
}

// Close implements bootstrap.Group.
func (g *splitGroup) Close() error { return nil }

// end takes part in the exchanges that are left, telling the members of a failure.
func (g *splitGroup) end(ctx context.Context, failed error) error {
	blob := []byte{0}
	if failed != nil {
		blob = append([]byte{1}, failed.Error()...)
	}
	var first error
	for g.done <= exchanges {
		if _, err := g.exchange(ctx, blob); err != nil && first == nil {
			first = err
		}
	}
	return first
}
