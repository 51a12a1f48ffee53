package collective

import (
	"fmt"

	"github.com/gccl/gccl/schedule"
)

// choice is an algorithm with its parameters.
type choice struct {
	info     *schedule.Info
	index    int
	shape    schedule.Shape
	channels int
	window   int // elements of a chunk in one window; 0: all in one
}

// choose picks an algorithm from data that all ranks have agreed on.
func (c *Comm) choose(key planKey, sh *shape) (choice, error) {
	coll := schedule.Collective(key.kind)
	if key.kind == Barrier {
		coll = schedule.AllReduce
	}
	bytes := key.count * key.dtype.Size()
	want := c.prefer(coll, bytes, key)
	if c.cfg.force != "" {
		want = c.cfg.force
	}
	for i := range c.catalog {
		in := &c.catalog[i]
		if in.Name != want || in.Collective != coll {
			continue
		}
		ch := choice{info: in, index: i, shape: schedule.Shape{Root: key.root}, channels: 1}
		if err := in.Supports(c.size, ch.shape); err != nil {
			return ch, fmt.Errorf("%w: %s: %v", ErrInternal, in.Name, err)
		}
		ch.window = max(1, c.geo.SlotBytes/key.dtype.Size())
		return ch, nil
	}
	return choice{}, fmt.Errorf("%w: no algorithm for %v", ErrInternal, coll)
}

func (c *Comm) prefer(coll schedule.Collective, bytes int, key planKey) string {
	switch coll {
	case schedule.AllReduce:
		if bytes <= 16<<10 && !key.registered || bytes <= 1<<10 {
			return "direct.AllReduceOneShot"
		}
		return "direct.AllReduceTwoShot"
	case schedule.ReduceScatter:
		return "direct.ReduceScatterDirect"
	case schedule.AllGather:
		return "direct.AllGatherDirect"
	case schedule.Broadcast:
		return "direct.BroadcastDirect"
	case schedule.Reduce:
		return "direct.ReduceDirect"
	case schedule.Gather:
		return "direct.GatherDirect"
	case schedule.Scatter:
		return "direct.ScatterDirect"
	case schedule.AllToAll:
		if key.inPlace {
			return "direct.AllToAllBruck"
		}
		return "direct.AllToAllPairwise"
	case schedule.Scan:
		return "direct.ScanLinear"
	case schedule.Exscan:
		return "direct.ExscanLinear"
	}
	return ""
}
