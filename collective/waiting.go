package collective

import (
	"time"

	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/executor"
	"go.uber.org/zap"
)

// waiting decides how this rank waits, from the ranks and cores of its machine. It is a local matter:
// ranks may differ in it.
func (c *Comm) waiting() executor.Wait {
	w := executor.Wait{Spins: max(0, c.cfg.Spin), Yield: c.cfg.yield, Sleep: time.Millisecond, Ask: c.answer}
	if c.cfg.still {
		w.Sleep = 0
	}
	if c.cfg.Spin == 0 && !c.crowded() {
		w.Spins = 2000
	}
	if c.cfg.network == nil || c.cfg.pulse {
		w.Silence = c.cfg.Heartbeat
	}
	if w.Yield == nil {
		w.Yield = cpu.Yield
	}
	return w
}

// crowded reports whether the ranks of this host outnumber the cores that they may use.
func (c *Comm) crowded() bool {
	local, cores := 0, cpu.Set(nil) // a launcher may have bound each rank to a core of its own
	for i := range c.peers {
		if c.peers[i].Kernel == c.peers[c.rank].Kernel {
			local, cores = local+1, cores.Union(c.peers[i].CPUs)
		}
	}
	return local > cores.Count()
}

// lendMin is the shortest transfer of a kind of call that is lent where no setting says it. The sender of a lent
// transfer waits until it has been read, which costs a turn of the core where ranks share one; a root or a
// leaf need not wait for anything else.
func (c *Comm) lendMin(k Kind) int {
	switch crowded := c.crowded(); {
	case crowded && k.rooted():
		return 128 << 10
	case crowded:
		return 16 << 10
	case k.rooted():
		return 8 << 10
	}
	return lendLeast
}

// fields are what the one line about a new communicator says.
func (c *Comm) fields() []zap.Field {
	by := map[string]int{}
	for r := range c.size {
		if r != c.rank {
			name, _ := c.providerFor(r) // connect has asked before
			by[name]++
		}
	}
	return []zap.Field{
		zap.Int("rank", c.rank), zap.Int("size", c.size), zap.Any("peers by provider", by), zap.Bool("lazy", c.pairs != nil),
		zap.Int("lanes", c.geo.Lanes), zap.Int("slots", c.geo.Slots), zap.Int("slot bytes", c.geo.SlotBytes),
		zap.Uint64("epoch", c.epoch),
	}
}

func errorFields(e *StepError) []zap.Field {
	return []zap.Field{zap.Int("rank", e.Rank), zap.Int("peer", e.Peer), zap.Error(e)}
}
