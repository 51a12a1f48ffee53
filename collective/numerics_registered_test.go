package collective

import (
	"context"
	"fmt"

	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// allocated makes guarded tensors inside two registered windows, in turn, at even and odd offsets.
type allocated struct {
	windows [2]tensor.Tensor
	next    int
}

func (a *allocated) place(dt tensor.DType, count int, odd bool) guarded {
	g := guarded{off: guardBytes}
	if odd {
		g.off = 129 + dt.Size()
	}
	n := count * dt.Size()
	g.all = a.windows[a.next].Bytes()[:g.off+n+guardBytes]
	a.next = 1 - a.next
	g.mark(dt, n)
	return g
}

// RunRegistered makes every collective by every algorithm on views of registered tensors, in three
// types and three counts, in and out of place, and compares every element with the reference. It
// returns how many calls it made.
func RunRegistered(c *Comm) (calls int, err error) {
	const most = 4099
	var a allocated
	for i := range a.windows {
		if a.windows[i], err = c.Alloc(context.Background(), tensor.Uint8, most*8*c.size+512); err != nil {
			return 0, err
		}
	}
	infos := catalog()
	for k := range infos {
		info := &infos[k]
		if info.Supports(c.size, schedule.Shape{}) != nil {
			continue
		}
		for d, dt := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Int64} {
			for i, count := range []int{3, 517, most} {
				for _, inPlace := range []bool{false, true} {
					if inPlace && !info.InPlace {
						continue
					}
					tc := tableCase{info: info, dt: dt, op: tensor.Sum, count: count, inPlace: inPlace, odd: (i+d)%2 == 0, root: c.size - 1}
					a.next = 0
					if err := tc.runIn(c, a.place); err != nil {
						return calls, fmt.Errorf("rank %d of %d: %v, registered: %w", c.rank, c.size, tc, err)
					}
					if call := (Call{Kind: AllReduce, Src: a.windows[0], Dst: a.windows[1]}); !c.registered(&call) {
						return calls, fmt.Errorf("the tensors are not registered")
					}
					calls++
				}
			}
		}
	}
	for _, w := range a.windows {
		if err := c.Free(w); err != nil {
			return calls, err
		}
	}
	return calls, nil
}
