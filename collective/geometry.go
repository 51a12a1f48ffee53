package collective

import (
	"math/bits"

	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/link"
)

// Ring buffers without GCCL_BUFFSIZE. What all peers of a rank may have under way to it together
// should be more than a core's second-level cache, because copying into lines that the peer has just
// read is slow, and not much more, because it is touched over and over (measured on 2 cores: 2 to 4 MiB
// a rank was best for 2 to 8 ranks).
const (
	hostBuffers = 4 << 20 // bytes of all rings into a rank on one host
	ringMost    = 2 << 20 // longest ring
	ringLeast   = 64 << 10
	// Two ranks of one host over sockets: 8 slots of 512 KiB instead of 256, for fewer messages.
	// AllReduce from 1 to 16 MiB was 5 to 17 % faster (one run, medians of 5), and 11 to 32 %
	// slower with slots of half the length (another run, medians of 3); 4 ranks gained nothing.
	pairRing  = 4 << 20
	slotLeast = 4 << 10 // shortest slot of those rings
)

// Slots for what goes to several ranks of a host at once (link.Share): one rank's, whatever the number of its peers, so that
// they can be longer than those of rings. Longer messages mean fewer turns where ranks outnumber cores: Broadcast of 1
// MiB, 8 ranks on 2 cores: 412 µs with slots of 64 KiB, 194 with 256; AllGather of 16 MiB, 4 ranks: 2.5 ms with 128 KiB, 2.3
// with 256, 2.2 with 512 (medians of 2 or 3 rounds).
const (
	poolSlot = 256 << 10
	poolMost = 2 << 20 // all of them
)

// Slots without GCCL_SLOTS: at least as many as ranks, because log-step algorithms run up to two thirds
// of the ranks' chunks ahead and three quarters of a ring are sure to be free (link.Geometry.Usable). Up
// to mostSlots, which bounds the memory: with more ranks, these algorithms are refused.
const (
	hostSlots = 8
	netSlots  = 16
	mostSlots = 64
)

func defaultSlots(ranks int, oneHost bool) int {
	least := netSlots
	if oneHost {
		least = hostSlots
	}
	return min(mostSlots, max(least, 1<<bits.Len(uint(max(1, ranks)-1))))
}

// geometry is the shape of the links, from what the ranks have agreed on.
func geometry(cfg *Config, peers []hello) link.Geometry {
	ring, slots := cfg.BufferBytes, cfg.Slots
	if slots == 0 {
		slots = defaultSlots(len(peers), oneHost(peers))
	}
	if ring == 0 {
		ring = ringMost
		if len(peers) == 2 && oneHost(peers) && peers[0].Providers[0] == "tcp" {
			ring = pairRing
		}
		if oneHost(peers) && (peers[0].Providers[0] == "shm" || peers[0].Providers[0] == "loopback") {
			share := max(1, hostBuffers/(cfg.Channels*max(1, len(peers)-1)))
			ring = min(ringMost, max(ringLeast, slots*slotLeast, 1<<(bits.Len(uint(share))-1)))
		}
	}
	g := link.Geometry{Lanes: max(cfg.Channels, scheduleLanes) + 1, Slots: slots, SlotBytes: max(64, ring/max(1, slots)&^63), Checksum: cfg.Checksum}
	if len(peers) > 2 {
		// At least what a message in a ring's slot has: chunks are as long as those can carry.
		g.PoolLanes, g.PoolBytes = 1, min(g.SlotBytes, executor.PieceBytes)
		if cfg.BufferBytes == 0 {
			g.PoolBytes = max(g.PoolBytes, min(poolSlot, poolMost/slots))
		}
	}
	return g
}

func oneHost(peers []hello) bool {
	for i := range peers {
		if peers[i].HostID != peers[0].HostID {
			return false
		}
	}
	return true
}
