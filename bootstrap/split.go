package bootstrap

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Split divides the ranks of g into new groups: all ranks that give the same color ≥ 0 form one, in the
// order of their keys, and of their ranks in g where keys are equal. A rank that gives a color < 0 joins
// none and gets a nil Group. All ranks of g must call Split.
//
// cfg is what g was connected with; its rank, size and root are not used. The new root listens on a
// port of its own, which it tells the others through g. g stays as it is, and the new groups outlive it.
func Split(ctx context.Context, g Group, color, key int, cfg Config) (Group, error) {
	newGroup, err := split(ctx, g, color, key, cfg)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: split on rank %d: %w", g.Rank(), err)
	}
	return newGroup, nil
}

func split(ctx context.Context, g Group, color, key int, cfg Config) (Group, error) {
	wishes, err := g.AllGather(ctx, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil,
		uint64(color)), uint64(key)))
	if err != nil {
		return nil, err
	}
	members, err := sameColor(wishes, color)
	if err != nil {
		return nil, err
	}
	rank := slices.Index(members, g.Rank())
	if lg, ok := g.(*localGroup); ok {
		return lg.split(color, rank, len(members)), nil
	}

	oneHost := cfg.oneHost()
	var addrs string
	var trouble error
	cfg.Listener = nil
	if color >= 0 && rank == 0 && len(members) > 1 {
		cfg.Listener, addrs, trouble = listenPart(ctx, &cfg, oneHost)
	}
	told, err := g.AllGather(ctx, []byte(addrs)) // with trouble, too: the others wait for it
	if trouble != nil {
		return nil, trouble
	}
	if err != nil || color < 0 {
		closeListener(cfg.Listener)
		return nil, err
	}
	if len(members) > 1 && len(told[members[0]]) == 0 {
		return nil, &RankError{Rank: members[0], Err: fmt.Errorf("%w: it cannot listen", ErrConfig)}
	}
	if oneHost {
		cfg.LocalSize = len(members)
	} else {
		cfg.LocalSize = 0
	}
	cfg.LocalRank = 0
	cfg.Rank, cfg.Size = rank, len(members)
	cfg.Root, cfg.RootIsGuess = string(told[members[0]]), false
	cfg.Store, cfg.Rendezvous, cfg.PMIFD = nil, "", 0
	cfg.RunID += "/" + cfg.Root // no two roots that live have the same address
	return connect(ctx, &cfg)
}

// listenPart binds the socket of a new group's root and returns its addresses.
func listenPart(ctx context.Context, cfg *Config, loopback bool) (net.Listener, string, error) {
	listeners, err := listenAny(ctx, cfg, false)
	if err != nil {
		return nil, "", err
	}
	addrs, err := published(cfg, listeners, netip.Addr{}, loopback)
	if err != nil {
		closeAll(listeners)
		return nil, "", err
	}
	return listeners[0], strings.Join(addrs, ","), nil // one, as it is bound to all addresses
}

// sameColor returns the ranks that wish for color, in the order of the new group.
func sameColor(wishes [][]byte, color int) ([]int, error) {
	var members []int
	keys := make([]int, len(wishes))
	for r, w := range wishes {
		if len(w) != 16 {
			return nil, &RankError{Rank: r, Err: fmt.Errorf("%w: it does not split", ErrMismatch)}
		}
		keys[r] = int(binary.BigEndian.Uint64(w[8:]))
		if int(binary.BigEndian.Uint64(w)) == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int {
		switch {
		case keys[a] < keys[b]:
			return -1
		case keys[a] > keys[b]:
			return 1
		}
		return 0
	})
	return members, nil
}

func closeListener(l net.Listener) {
	if l != nil {
		l.Close()
	}
}

// split returns this rank's end of the local group of a color. All ranks number their splits alike, as
// they call collectives in the same order.
func (g *localGroup) split(color, rank, size int) Group {
	g.splits++
	if color < 0 {
		return nil
	}
	h := g.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	id := splitID{g.splits, color}
	if h.parts == nil {
		h.parts = make(map[splitID]*localHub)
	}
	part := h.parts[id]
	if part == nil {
		part = newLocalHub(size)
		h.parts[id] = part
	}
	if part.joined++; part.joined == size {
		delete(h.parts, id)
	}
	return part.group(rank)
}

type splitID struct{ number, color int }
