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
		w.Silence = c.heartbeat()
	}
	if w.Yield == nil {
		w.Yield = cpu.Yield
	}
	return w
}

// crowded reports whether the ranks of this host outnumber the cores that they may use.
func (c *Comm) crowded() bool {
	p := places(c.peers, kernelOf)[c.peers[c.rank].Kernel]
	return p.ranks > p.cores.Count()
}

// place is what the ranks of a machine share.
type place struct {
	ranks int
	cores cpu.Set // that they may use: a launcher may have bound each to one of its own
}

// places returns the machines by kernel (kernelOf), or by host (hostOf), of which a kernel may pretend to be several.
func places(hs []hello, name func(*hello) string) map[string]place {
	m := map[string]place{}
	for i := range hs {
		at := name(&hs[i])
		m[at] = place{m[at].ranks + 1, m[at].cores.Union(hs[i].CPUs)}
	}
	return m
}

func kernelOf(h *hello) string { return h.Kernel }
func hostOf(h *hello) string   { return h.HostID }

// ranksAwake is how many ranks a core can have, before their turns are so far apart that one may not run for seconds while
// all of them begin: 16 a core made 240 links in 1.3 s, 32 a core 2,016 in 20 s, in which some did not answer for 10.
const ranksAwake = 8

// defaultHeartbeat is the heartbeat where nobody has set one and no core has more ranks than that.
const defaultHeartbeat = 10 * time.Second

// crowding is by how much longer the heartbeat is where cores have more ranks, wherever they are: at least 1.
func crowding(hs []hello) int {
	most := 1
	for _, p := range places(hs, kernelOf) {
		most = max(most, p.ranks/max(1, p.cores.Count())/ranksAwake)
	}
	return most
}

// heartbeat is Config.Heartbeat, or what holds where that is not set.
func (c *Comm) heartbeat() time.Duration {
	if c.cfg.Heartbeat != 0 {
		return c.cfg.Heartbeat
	}
	return defaultHeartbeat * time.Duration(max(1, c.crowding))
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
	readers := 0
	for r := range c.size {
		if p := c.mesh.Peer(r); p != nil && p.Attached() {
			readers++
		}
	}
	return []zap.Field{
		zap.Int("rank", c.rank), zap.Int("size", c.size), zap.Any("peers by provider", by), zap.Bool("lazy", c.pairs != nil),
		zap.Int("peers that read this rank's memory", readers),
		zap.Int("lanes", c.geo.Lanes), zap.Int("slots", c.geo.Slots), zap.Int("slot bytes", c.geo.SlotBytes),
		zap.Uint64("epoch", c.epoch),
	}
}

func errorFields(e *StepError) []zap.Field {
	return []zap.Field{zap.Int("rank", e.Rank), zap.Int("peer", e.Peer), zap.Error(e)}
}
