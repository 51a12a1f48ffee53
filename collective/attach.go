package collective

import (
	"github.com/gccl/gccl/rdma/shm"
	"go.uber.org/zap"
)

// attaches reports whether ranks that shm connects to this one are to read long messages in its memory, and it in theirs.
func (c *Comm) attaches() bool {
	if c.cfg.CMA < 0 || c.cfg.Checksum {
		return false
	}
	if c.cfg.CMA > 0 {
		if err := shm.AllowAttach(); err != nil {
			c.log.Info("other processes may not read this one's memory", zap.Error(err))
		}
		return true
	}
	if err := shm.AttachPays(); err != nil {
		c.log.Info("long messages are copied through shared memory", zap.Error(err))
		return false
	}
	return true
}

// exchange stands for a transfer in a group that has some in both directions.
const exchange = Recv + 1

// attachRange is for which sizes of calls, the larger of In and Out in bytes, transfers of at least least bytes are read in their
// sender's memory.
type attachRange struct{ least, from, to int }

// Where two ranks have a core each. Reading costs a system call of the receiver, and the sender its wait until that is over, but
// spares a copy. What is short goes through a slot as fast. What is much longer than a cache goes faster through slots,
// because there it is brought to its place past the cache. A root or a leaf copies while its peer does, and so gains little or
// nothing.
// Time without ÷ time with it, medians of 3 rounds in turns, near cores of an Intel Xeon:
//
//	                64 KiB  128 KiB  256 KiB  512 KiB  1 MiB  2 MiB  4 MiB  8 MiB  16 MiB  64 MiB
//	allreduce         0.92     1.11     1.19     1.09   1.13   1.01   1.05   1.06    0.97    0.86
//	allgather         1.12     1.24     1.63     1.58   1.55   1.26   1.23   1.35    1.38    0.75
//	reducescatter     0.84     1.05     1.17     1.36   1.41      –   1.17      –    1.08    0.90
//	alltoall          0.91     1.19     1.61     1.53   1.46   1.05   1.14   1.12    0.93       –
//	half a pingpong   1.68     1.22     1.45     1.18   1.18   0.92   0.87      –    0.45       –
//	broadcast         1.03        –     1.38        –   1.31      –      –      –    1.09       –
//	reduce            0.57        –     0.85        –   0.79      –      –      –    0.67       –
//
// Broadcast in one buffer, 64 KiB to 2 MiB: 0.74, –, 1.15, 1.19, 0.84, 0.68. Half a ping-pong of 8, 16 and
// 32 KiB: 1.00, 1.19, 1.34; but a Send that is read waits for its receiver, and where two ranks send eight messages each before they
// receive, one takes 50 µs for 3 to 7 of 16 KiB, and 60 for 8 of 64 KiB (256 KiB, 1 MiB: 150 and 560 for 120 and 420).
//
// From 1.5 MiB AllReduce is done in two shots, which through slots take less than either way of one: 4 MiB 716 µs for 818 and 970.
//
// A Send within a group that receives, too (exchange), is not waited for by an idle core: SendRecv, 16 KiB 1.38, 64 KiB to 64 MiB by factors of
// four: 1.47, 1.80, 1.76, 1.36, 1.30, 0.87.
var attachTwo = map[Kind]attachRange{
	AllReduce:     {64 << 10, 128 << 10, 3 << 19},
	AllGather:     {32 << 10, 64 << 10, 32 << 20},
	ReduceScatter: {64 << 10, 128 << 10, 32 << 20},
	AllToAll:      {64 << 10, 128 << 10, 12 << 20},
	Broadcast:     {64 << 10, 192 << 10, 768 << 10},
	Send:          {64 << 10, 64 << 10, 1 << 20},
	exchange:      {16 << 10, 16 << 10, 32 << 20},
}

// attachMore is where ranks share cores. What goes to several of them is copied once for all (link.Share), which is less than
// one copy for each; AllToAll alone has other bytes for each. 4 ranks, 128 KiB to 16 MiB by factors of two but for 8 MiB: 0.94,
// 1.47, 1.19, 1.33, 1.14, 1.07, 0.77; 8 ranks, 512 KiB to 4 MiB: 1.05, 1.15, 1.23, 1.29. AllReduce, AllGather and
// ReduceScatter of 1 MiB at 4 ranks: 0.75, 0.79 and 0.79. SendRecv, 4 ranks, 16 KiB to 16 MiB by factors of four: 0.65, 1.10, 1.65,
// 1.41, 1.11, 1.41 (64 KiB again, 4 and 8 ranks: 1.20, 1.18).
var attachMore = map[Kind]attachRange{
	AllToAll: {32 << 10, 256 << 10, 6 << 20},
	exchange: {64 << 10, 64 << 10, 32 << 20},
}

// attachMin is the shortest transfer of a call of so many bytes that is read in its sender's memory where the receiver can
// (link.Peer.Attached); 0: none is. Only the sender goes by it.
func (c *Comm) attachMin(k Kind, bytes int) int {
	if c.cfg.LendMin > 0 {
		return c.cfg.LendMin
	}
	ranges := attachMore
	if c.size == 2 && !c.crowded() {
		ranges = attachTwo
	}
	if r, ok := ranges[k]; ok && r.from <= bytes && bytes <= r.to {
		return r.least
	}
	return 0
}
