package collective

import (
	"math/bits"

	"github.com/gccl/gccl/internal/link"
)

// Ring buffers without GCCL_BUFFSIZE. What all peers of a rank may have under way to it together
// should be more than a core's second-level cache, because copying into lines that the peer has just
// read is slow, and not much more, because it is touched over and over (measured on 2 cores: 2 to 4 MiB
// a rank was best for 2 to 8 ranks).
//
// Algorithms of two levels run further ahead than others: four hosts of two ranks need more than 10 slots.
const (
	hostSlots   = 8
	netSlots    = 16
	hostBuffers = 4 << 20 // bytes of all rings into a rank on one host
	ringMost    = 2 << 20 // longest ring
	ringLeast   = 64 << 10
)

// geometry is the shape of the links, from what the ranks have agreed on.
func geometry(cfg *Config, peers []hello) link.Geometry {
	ring, slots := cfg.BufferBytes, cfg.Slots
	if slots == 0 {
		slots = hostSlots
		if !oneHost(peers) {
			slots = netSlots
		}
	}
	if ring == 0 {
		ring = ringMost
		if oneHost(peers) && (peers[0].Providers[0] == "shm" || peers[0].Providers[0] == "loopback") {
			share := hostBuffers / (cfg.Channels * max(1, len(peers)-1))
			ring = min(ringMost, max(ringLeast, 1<<(bits.Len(uint(share))-1)))
		}
	}
	return link.Geometry{Lanes: max(cfg.Channels, scheduleLanes) + 1, Slots: slots, SlotBytes: max(64, ring/max(1, slots)&^63)}
}

func oneHost(peers []hello) bool {
	for i := range peers {
		if peers[i].HostID != peers[0].HostID {
			return false
		}
	}
	return true
}
