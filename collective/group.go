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
// ranks; those of the same description match in their order. A rank may send to itself. What a call
// writes must not overlap with what another uses: that is an ErrInvalid.
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

// SendRecv sends src to one peer and receives dst from another, or the same, at the same time. They must not overlap.
func (c *Comm) SendRecv(ctx context.Context, src tensor.Tensor, to int, dst tensor.Tensor, from int) error {
	if b, ok := c.queue.begin(); ok {
		err := c.sendRecv(ctx, src, to, dst, from)
		c.queue.end(b)
		return err
	}
	return c.Group(ctx, Call{Kind: Send, Src: src, Peer: to}, Call{Kind: Recv, Dst: dst, Peer: from})
}

// sendRecv is runGroup for two transfers. What was worked out for the same two the last time, in host memory, holds again.
func (c *Comm) sendRecv(ctx context.Context, src tensor.Tensor, to int, dst tensor.Tensor, from int) error {
	g := &c.grouping
	again := g.kept && g.pair[0].Peer == to && g.pair[1].Peer == from && g.pair[0].Src == src && g.pair[1].Dst == dst
	if !again {
		g.drop()
		g.pair = [2]Call{{Kind: Send, Src: src, Peer: to}, {Kind: Recv, Dst: dst, Peer: from}}
	}
	err := c.begins(ctx, g.pair[:])
	switch {
	case err != nil:
	case again:
		for i := range g.members {
			c.number(g.jobs[i], g.members[i].plan, g.members[i].call)
		}
		err = c.runJobs(ctx, g)
	default:
		err = c.runCalls(ctx, g, g.pair[:])
		g.kept = len(g.members) == 2 && !onDevice(&g.pair[0]) && !onDevice(&g.pair[1])
	}
	if err != nil || !g.kept {
		g.drop()
	}
	return err
}

// grouping is what the calls of a group are worked out with, kept to save allocations. Between groups it holds nothing of them, but for
// a SendRecv that may come again.
type grouping struct {
	pair    [2]Call // of SendRecv
	kept    bool    // members and jobs are pair's
	own     []*Call // a rank's transfers to itself
	members []member
	jobs    []*executor.Job
	extents []extent
	// exchange: there are transfers in both directions.
	exchange bool
}

// member is a call of a group, ready to run.
type member struct {
	call  *Call
	plan  *planned
	stage stage // of tensors on devices, else nil
}

// groupKept is how many members' memory is kept from one group to the next.
const groupKept = 64

// drop forgets a group and gives back its stages. The engine still knows its jobs, and may be asked about them, most of all after
// a failure.
func (g *grouping) drop() {
	for _, j := range g.jobs[:min(len(g.jobs), len(g.members))] {
		j.Args, j.After = executor.Args{}, nil
	}
	for i := range g.members {
		if st := g.members[i].stage; st != nil {
			st.release()
		}
	}
	g.pair, g.kept = [2]Call{}, false
	clear(g.members)
	clear(g.own)
	clear(g.extents)
	g.own, g.members = g.own[:0], g.members[:0]
	if cap(g.members) > groupKept {
		g.own, g.members, g.jobs, g.extents = nil, nil, nil, nil
	}
}

func (c *Comm) runGroup(ctx context.Context, calls []Call) error {
	if err := c.begins(ctx, calls); err != nil {
		return err
	}
	g := &c.grouping
	g.drop()
	err := c.runCalls(ctx, g, calls)
	g.drop()
	return err
}

// begins returns why a group cannot begin, or nil.
func (c *Comm) begins(ctx context.Context, calls []Call) error {
	if err := c.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notBegun(groupOf(calls), err)
	}
	return nil
}

// runCalls runs a group. It leaves what it worked out in g.
func (c *Comm) runCalls(ctx context.Context, g *grouping, calls []Call) error {
	if err := c.assemble(g, calls); err != nil {
		return err
	}
	if err := c.apart(g, calls); err != nil {
		return err
	}
	if err := c.runOwn(ctx, g.own); err != nil {
		return err
	}
	if len(g.members) == 0 {
		return nil
	}
	if err := c.reachAll(ctx, g.members); err != nil {
		return err
	}
	if err := c.stageAll(g.members); err != nil {
		return err
	}
	c.makeJobs(g)
	return c.runJobs(ctx, g)
}

// runJobs runs the jobs of a group's members.
func (c *Comm) runJobs(ctx context.Context, g *grouping) error {
	jobs := g.jobs[:len(g.members)]
	err := c.engine.Run(ctx, c.cfg.Timeout, jobs)
	for i := range g.members {
		if st := g.members[i].stage; err == nil && st != nil {
			err = st.finish(ctx)
		}
	}
	if c.ended(err); err != nil {
		// That of the lane that failed, or the first that has not finished.
		at, _ := c.engine.Position()
		i := max(0, slices.Index(jobs, at.Job))
		call := g.members[i].call
		g.jobs = nil // they stay as they are
		return c.fail(call, c.numberOf(jobs[i], call), err)
	}
	return nil
}

// assemble checks and plans the calls of a group: the collectives in the order that all ranks have, then the transfers.
func (c *Comm) assemble(g *grouping, calls []Call) error {
	collectives, sends, receives := false, false, false
	for i := range calls {
		call := &calls[i]
		if err := call.Kind.check(); err != nil {
			return err
		}
		if call.Kind >= Send && call.Peer == c.rank {
			g.own = append(g.own, call)
			continue
		}
		p, err := c.ready(call)
		if err != nil {
			return err
		}
		collectives = collectives || call.Kind < Send
		sends, receives = sends || call.Kind == Send, receives || call.Kind == Recv
		g.members = append(g.members, member{call, p, nil})
	}
	g.exchange = sends && receives
	if collectives {
		slices.SortStableFunc(g.members, func(a, b member) int {
			if max(a.call.Kind, b.call.Kind) >= Send { // transfers come last, as they are listed
				return cmp.Compare(min(a.call.Kind, Send), min(b.call.Kind, Send))
			}
			return cmp.Or(cmp.Compare(a.plan.sort.A, b.plan.sort.A), cmp.Compare(a.plan.sort.B, b.plan.sort.B), cmp.Compare(a.plan.fp, b.plan.fp))
		})
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

// makeJobs makes the members' jobs, and chains those that share links: the collectives, and the transfers of each direction with
// each peer.
func (c *Comm) makeJobs(g *grouping) {
	for len(g.jobs) < len(g.members) {
		g.jobs = append(g.jobs, &executor.Job{})
	}
	var last *executor.Job // of the collectives
	for i := range g.members {
		m, j := &g.members[i], g.jobs[i]
		c.fill(j, m.plan, m.call)
		if m.stage != nil {
			j.Args.Stage = m.stage
		}
		if g.exchange && m.call.Kind == Send {
			j.Args.AttachMin = m.plan.exchangeMin
		}
		before := &last
		switch m.call.Kind {
		case Send:
			before = &c.p2pSeq[m.call.Peer].sending
		case Recv:
			before = &c.p2pSeq[m.call.Peer].receiving
		}
		j.After, *before = *before, j
	}
	for i := range g.members {
		if call := g.members[i].call; call.Kind >= Send {
			s := &c.p2pSeq[call.Peer]
			s.sending, s.receiving = nil, nil
		}
	}
}

// runOwn carries out a rank's transfers to itself.
func (c *Comm) runOwn(ctx context.Context, calls []*Call) error {
	pairs, err := ownTransfers(calls)
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if err := c.copyOwn(ctx, p[1].Dst, p[0].Src); err != nil {
			return err
		}
	}
	return nil
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
