package tree

import "github.com/gccl/gccl/schedule"

// up is the lane that reduces the chunks [first, first+count) to the root of a tree: for each, one
// fused step takes what the children send, combines it in order with the rank's own and sends it
// to the parent. acc says where a sum of chunk i goes; a leaf needs none and sends from In.
func (n *node) up(first, count int, acc func(i int) schedule.Span) schedule.Lane {
	var lane schedule.Lane
	for i := first; i < first+count; i++ {
		own := at(schedule.In, i)
		cur := own
		reduce := func(child int, left bool) {
			lane = append(lane, schedule.Step{
				Op: schedule.RecvReduce, Peer: child, Src: cur, Dst: acc(i), Left: left,
			})
			cur = acc(i)
		}
		for j := len(n.left) - 1; j >= 0; j-- {
			reduce(n.left[j], true)
		}
		for _, c := range n.right {
			reduce(c, false)
		}
		if n.parent >= 0 {
			lane = append(lane, send(n.parent, cur))
			continue
		}
		if n.degree() == 0 {
			lane = append(lane, copyTo(own, acc(i)))
		}
		lane[len(lane)-1].Final = true
	}
	return lane
}

// down is the lane that passes the chunks [first, first+count) of Out from the root of a tree to
// all: for each, one fused step takes it from the parent and sends it to the children, nearest
// the leaves last. The root sends from src; wait is what its first step for chunk i waits for.
func (n *node) down(first, count int, src schedule.Buf, wait func(i int) schedule.After) schedule.Lane {
	var lane schedule.Lane
	for i := first; i < first+count; i++ {
		from := at(schedule.Out, i)
		begin := len(lane)
		if n.parent >= 0 {
			lane = append(lane, recv(n.parent, from))
		} else {
			from.Buf = src
		}
		for j := len(n.right) - 1; j >= 0; j-- {
			lane = append(lane, send(n.right[j], from))
		}
		for _, c := range n.left {
			lane = append(lane, send(c, from))
		}
		if n.parent < 0 && len(lane) > begin {
			lane[begin].After = wait(i)
		}
	}
	return lane
}

func never(int) schedule.After { return schedule.After{} }

// both is the lanes of an AllReduce of the chunks [first, first+count): up and, waiting for it at
// the root alone, down. Elsewhere a chunk comes down after this rank's part of it went up.
func (n *node) both(first, count, upLane int) (up, down schedule.Lane) {
	up = n.up(first, count, func(i int) schedule.Span { return at(schedule.Out, i) })
	down = n.down(first, count, schedule.Out, func(i int) schedule.After {
		return schedule.After{Lane: upLane, Steps: (i - first + 1) * len(up) / count}
	})
	return up, down
}
