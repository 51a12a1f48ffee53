package collective

import (
	"context"

	"github.com/gccl/gccl/tensor"
)

// The methods below hand on &Call{…} and not a variable: that the compiler would copy whole, with loads longer than the stores just
// before, which wait until those have left the processor's store buffer, where they may be behind one for a line at a peer.

// AllReduce combines every rank's src into every rank's dst: dst[i] = src of rank 0 [i] ⊕ … ⊕ src
// of rank n−1 [i]. All ranks get the same bits. With dst the same as src it works in place.
func (c *Comm) AllReduce(ctx context.Context, dst, src tensor.Tensor, op tensor.Op) error {
	return c.do(ctx, &Call{Kind: AllReduce, Dst: dst, Src: src, Op: op})
}

// Reduce is AllReduce whose result only root gets; others' dst is not used and may be tensor.Tensor{}.
func (c *Comm) Reduce(ctx context.Context, dst, src tensor.Tensor, op tensor.Op, root int) error {
	return c.do(ctx, &Call{Kind: Reduce, Dst: dst, Src: src, Op: op, Root: root})
}

// Broadcast copies root's src into every rank's dst, root's own, too; others' src is not used and may be
// tensor.Tensor{}. With dst the same as src, at root, it works in place.
func (c *Comm) Broadcast(ctx context.Context, dst, src tensor.Tensor, root int) error {
	return c.do(ctx, &Call{Kind: Broadcast, Dst: dst, Src: src, Root: root})
}

// AllGather copies the src of every rank r into block r of every rank's dst, which is Size times as long.
func (c *Comm) AllGather(ctx context.Context, dst, src tensor.Tensor) error {
	return c.do(ctx, &Call{Kind: AllGather, Dst: dst, Src: src})
}

// AllGatherV is AllGather with blocks of counts[r] elements; all ranks give the same counts.
func (c *Comm) AllGatherV(ctx context.Context, dst, src tensor.Tensor, counts []int) error {
	return c.do(ctx, &Call{Kind: AllGather, Dst: dst, Src: src, Counts: given(counts)})
}

// ReduceScatter combines every rank's src, which is Size times as long as dst, and gives rank r
// block r of the result.
func (c *Comm) ReduceScatter(ctx context.Context, dst, src tensor.Tensor, op tensor.Op) error {
	return c.do(ctx, &Call{Kind: ReduceScatter, Dst: dst, Src: src, Op: op})
}

// ReduceScatterV is ReduceScatter with blocks of counts[r] elements; all ranks give the same counts.
func (c *Comm) ReduceScatterV(ctx context.Context, dst, src tensor.Tensor, op tensor.Op, counts []int) error {
	return c.do(ctx, &Call{Kind: ReduceScatter, Dst: dst, Src: src, Op: op, Counts: given(counts)})
}

// Gather copies the src of every rank r into block r of root's dst, which is Size times as long. Others' dst is
// not used and may be tensor.Tensor{}.
func (c *Comm) Gather(ctx context.Context, dst, src tensor.Tensor, root int) error {
	return c.do(ctx, &Call{Kind: Gather, Dst: dst, Src: src, Root: root})
}

// GatherV is Gather with blocks of counts[r] elements. Only root's counts are used; others may give nil.
func (c *Comm) GatherV(ctx context.Context, dst, src tensor.Tensor, counts []int, root int) error {
	return c.do(ctx, &Call{Kind: Gather, Dst: dst, Src: src, Root: root, Counts: given(counts)})
}

// Scatter copies block r of root's src, which is Size times as long as dst, into the dst of every rank r, root's
// own, too. Others' src is not used and may be tensor.Tensor{}.
func (c *Comm) Scatter(ctx context.Context, dst, src tensor.Tensor, root int) error {
	return c.do(ctx, &Call{Kind: Scatter, Dst: dst, Src: src, Root: root})
}

// ScatterV is Scatter with blocks of counts[r] elements. Only root's counts are used; others may give nil.
func (c *Comm) ScatterV(ctx context.Context, dst, src tensor.Tensor, counts []int, root int) error {
	return c.do(ctx, &Call{Kind: Scatter, Dst: dst, Src: src, Root: root, Counts: given(counts)})
}

// AllToAll copies block r of every rank s's src into block s of rank r's dst. It works in place if all ranks call it so.
func (c *Comm) AllToAll(ctx context.Context, dst, src tensor.Tensor) error {
	return c.do(ctx, &Call{Kind: AllToAll, Dst: dst, Src: src})
}

// AllToAllV is AllToAll with blocks of send[r] elements for rank r and receive[s] elements from
// rank s. It does not work in place.
func (c *Comm) AllToAllV(ctx context.Context, dst, src tensor.Tensor, send, receive []int) error {
	return c.do(ctx, &Call{Kind: AllToAll, Dst: dst, Src: src, Counts: given(send), RecvCounts: given(receive)})
}

// Scan combines the src of ranks 0 to r into rank r's dst (an inclusive prefix). Avg is refused.
func (c *Comm) Scan(ctx context.Context, dst, src tensor.Tensor, op tensor.Op) error {
	return c.do(ctx, &Call{Kind: Scan, Dst: dst, Src: src, Op: op})
}

// Exscan combines the src of ranks 0 to r−1 into rank r's dst; rank 0's dst stays as it was. Avg is refused.
func (c *Comm) Exscan(ctx context.Context, dst, src tensor.Tensor, op tensor.Op) error {
	return c.do(ctx, &Call{Kind: Exscan, Dst: dst, Src: src, Op: op})
}

// Barrier returns when every rank has called it.
func (c *Comm) Barrier(ctx context.Context) error {
	return c.do(ctx, &Call{Kind: Barrier})
}

// Send sends src to a peer, whose matching Recv must ask for the same type and count. Transfers
// between two ranks match in order: there are no tags, and no receiving from any rank that sends. Sending
// to oneself works only in a Group.
//
// It returns when src may be changed again. It may wait until the peer receives, so two ranks that both
// send first, by Send or by Start, can wait for each other until their time is over: use SendRecv or Group. Where links are
// made when they are wanted (Config.Lazy), the first Send waits until the peer's calls want the link, too.
func (c *Comm) Send(ctx context.Context, src tensor.Tensor, peer int) error {
	return c.do(ctx, &Call{Kind: Send, Src: src, Peer: peer})
}

// Recv receives into dst what the peer sends.
func (c *Comm) Recv(ctx context.Context, dst tensor.Tensor, peer int) error {
	return c.do(ctx, &Call{Kind: Recv, Dst: dst, Peer: peer})
}

// given makes a list of counts not nil, which is what says that there are counts.
func given(counts []int) []int {
	if counts == nil {
		return []int{}
	}
	return counts
}
