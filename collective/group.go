package collective

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/tensor"
)

// Group makes several calls as one: collectives and transfers, in any order on each rank, without
// deadlock. It returns when all are done. Transfers between two ranks match in their order within
// the group; they run beside each other and beside the collectives. Collectives of different
// description (kind, type, operation, count, root) may be listed in different orders on different
// ranks; those of the same description match in their order. A rank may send to itself. The calls'
// tensors must not overlap.
func (c *Comm) Group(ctx context.Context, calls ...Call) error {
	if b, ok := c.queue.begin(); ok {
		if slices.ContainsFunc(calls, func(call Call) bool { return call.Op.Custom() }) {
			return c.custom(b, func() error { return c.runGroup(ctx, calls) })
		}
		err := c.runGroup(ctx, calls)
		c.queue.end(b)
		return err
	}
	return c.StartGroup(ctx, calls...).await(ctx, groupOf(calls))
}

// groupOf is the name of calls that are made as one.
type groupOf []Call

func (g groupOf) String() string { return fmt.Sprintf("group of %d calls", len(g)) }

// StartGroup is Group that returns at once.
func (c *Comm) StartGroup(ctx context.Context, calls ...Call) *Handle {
	calls = slices.Clone(calls)
	return c.queue.put(func() error { return c.runGroup(ctx, calls) })
}

// SendRecv sends src to one peer and receives dst from another, or the same, at the same time.
func (c *Comm) SendRecv(ctx context.Context, src tensor.Tensor, to int, dst tensor.Tensor, from int) error {
	return c.Group(ctx, Call{Kind: Send, Src: src, Peer: to}, Call{Kind: Recv, Dst: dst, Peer: from})
}

// member is a call of a group, ready to run.
type member struct {
	call  *Call
	plan  *planned
	stage stage // of tensors on devices, else nil
}

func (c *Comm) runGroup(ctx context.Context, calls []Call) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notBegun(groupOf(calls), err)
	}
	var collectives, transfers []member
	var own []*Call
	for i := range calls {
		call := &calls[i]
		if err := call.Kind.check(); err != nil {
			return err
		}
		if call.Kind >= Send && call.Peer == c.rank {
			own = append(own, call)
			continue
		}
		p, err := c.ready(call)
		if err != nil {
			return err
		}
		if call.Kind >= Send {
			transfers = append(transfers, member{call, p, nil})
		} else {
			collectives = append(collectives, member{call, p, nil})
		}
	}
	pairs, err := ownTransfers(own)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if err := c.copyOwn(ctx, p[1].Dst, p[0].Src); err != nil {
			return err
		}
	}
	slices.SortStableFunc(collectives, func(a, b member) int {
		return cmp.Or(cmp.Compare(a.plan.sort.A, b.plan.sort.A), cmp.Compare(a.plan.sort.B, b.plan.sort.B), cmp.Compare(a.plan.fp, b.plan.fp))
	})
	if err := c.reachAll(ctx, slices.Concat(collectives, transfers)); err != nil {
		return err
	}
	release, err := c.stageAll(collectives, transfers)
	if err != nil {
		return err
	}
	defer release()
	jobs := c.jobsFor(collectives, transfers)
	if len(jobs) == 0 {
		return nil
	}
	err = c.engine.Run(ctx, c.cfg.Timeout, jobs)
	for _, m := range append(collectives, transfers...) {
		if err == nil && m.stage != nil {
			err = m.stage.finish(ctx)
		}
	}
	if c.ended(err); err != nil {
		// That of the lane that failed, or the first that has not finished.
		at, _ := c.engine.Position()
		i := max(0, slices.Index(jobs, at.Job))
		call := slices.Concat(collectives, transfers)[i].call
		return c.fail(call, c.numberOf(jobs[i], call), err)
	}
	return nil
}

// reachAll makes the links that a group's members, in the order in which they get their numbers, want. If it
// cannot, the first of them that wants one has failed.
func (c *Comm) reachAll(ctx context.Context, members []member) error {
	var plans []*planned
	var failed *Call
	var number uint64
	for i, m := range members {
		if m.plan.later == nil {
			continue
		}
		if plans = append(plans, m.plan); failed == nil {
			failed, number = m.call, c.upcoming(m.call)
			for _, o := range members[:i] {
				if sequence(o.call) == sequence(failed) {
					number++
				}
			}
		}
	}
	if plans == nil {
		return nil
	}
	if err := c.reach(ctx, plans...); err != nil {
		return c.fail(failed, number, err)
	}
	return nil
}

// numbered are the calls that are counted together: collectives, or the transfers of a direction with a peer. They
// share links, too.
type numbered struct {
	kind Kind
	peer int
}

func sequence(call *Call) numbered {
	if call.Kind >= Send {
		return numbered{call.Kind, call.Peer}
	}
	return numbered{}
}

// jobsFor chains what shares links: the collectives, and the transfers of each direction with each
// peer.
func (c *Comm) jobsFor(collectives, transfers []member) []*executor.Job {
	jobs := make([]*executor.Job, 0, len(collectives)+len(transfers))
	last := map[numbered]*executor.Job{}
	for _, m := range append(collectives, transfers...) {
		j := &executor.Job{}
		c.fill(j, m.plan, m.call)
		if m.stage != nil {
			j.Args.Stage = m.stage
		}
		l := sequence(m.call)
		j.After, last[l] = last[l], j
		jobs = append(jobs, j)
	}
	return jobs
}

// ownTransfers pairs a rank's sends to itself with its receives from itself, in order.
func ownTransfers(calls []*Call) (pairs [][2]*Call, err error) {
	var sends, recvs []*Call
	for _, call := range calls {
		if call.Kind == Send {
			sends = append(sends, call)
		} else {
			recvs = append(recvs, call)
		}
	}
	if len(sends) != len(recvs) {
		return nil, invalid("group with %d sends of this rank to itself and %d receives", len(sends), len(recvs))
	}
	for i, s := range sends {
		r := recvs[i]
		if s.Src.DType() != r.Dst.DType() || s.Src.Len() != r.Dst.Len() {
			return nil, invalid("this rank sends itself %v and receives %v", s.Src, r.Dst)
		}
		pairs = append(pairs, [2]*Call{s, r})
	}
	return pairs, nil
}
