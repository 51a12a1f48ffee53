package verbs

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// gidType is how packets to a GID look.
type gidType uint8

const (
	gidIB gidType = iota + 1 // InfiniBand, or RoCE v1: a global route header behind the link header
	gidV2                    // RoCE v2: UDP over IP
)

func (t gidType) String() string {
	if t == gidV2 {
		return "RoCE v2"
	}
	return "IB/RoCE v1"
}

// gid is an entry of a port's GID table.
type gid struct {
	index  int // in its own port's table; not sent to peers
	typ    gidType
	prefix int // length of the local network's prefix in bits of the 16 bytes; 128 if unknown
	addr   [16]byte
}

func (g gid) ip() netip.Addr { return netip.AddrFrom16(g.addr).Unmap() }

func (g gid) String() string { return fmt.Sprintf("%v (%v)", g.ip(), g.typ) }

// maxGIDs is how many GIDs of a port are told to peers.
const maxGIDs = 8

// gidTable reads a port's GID table: by one call of the library, or, if it is old, from /sys.
func (d *Device) gidTable(name string, size int) ([]gid, error) {
	entries, ok, err := d.ctx.GIDs(size * int(d.limits.PhysPortCount))
	if err != nil {
		return nil, err
	}
	if !ok {
		return readGIDs(d.sys, name, int(d.port), size, interfacePrefix), nil
	}
	var gids []gid
	for _, en := range entries {
		if en.Port != uint32(d.port) {
			continue
		}
		g := gid{index: int(en.Index), typ: gidIB, prefix: unknownPrefix, addr: en.GID}
		if en.Type == 2 {
			g.typ = gidV2
		}
		if ifc, err := net.InterfaceByIndex(int(en.IfIndex)); err == nil {
			g.setPrefix(interfacePrefix(ifc.Name, g.ip()))
		}
		gids = append(gids, g)
	}
	return gids, nil
}

// setPrefix takes a prefix length that counts from the beginning of the IP address.
func (g *gid) setPrefix(n int) {
	switch {
	case n <= 0:
	case g.ip().Is4():
		g.prefix = 96 + n
	default:
		g.prefix = n
	}
}

// unknownPrefix stands for a network whose size is not known: it has one host.
const unknownPrefix = 128

// readGIDs reads a port's GID table from /sys/class/infiniband. Empty entries are left out; so are
// entries that cannot be read: inside a container the table has holes, where reading the type fails.
// prefix tells a network's prefix length by device and address, or 0.
func readGIDs(sys fs.FS, device string, port, size int, prefix func(netdev string, a netip.Addr) int) []gid {
	var gids []gid
	dir := fmt.Sprintf("%s/ports/%d/", device, port)
	for i := range size {
		text, err := fs.ReadFile(sys, fmt.Sprintf("%sgids/%d", dir, i))
		if err != nil {
			continue
		}
		g := gid{index: i, typ: gidIB, prefix: unknownPrefix}
		raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), ":", ""))
		if err != nil || len(raw) != 16 || bytes.Equal(raw[8:], make([]byte, 8)) {
			continue
		}
		copy(g.addr[:], raw)
		typ, err := fs.ReadFile(sys, fmt.Sprintf("%sgid_attrs/types/%d", dir, i))
		if err != nil {
			continue
		}
		if strings.TrimSpace(string(typ)) == "RoCE v2" {
			g.typ = gidV2
		}
		if dev, err := fs.ReadFile(sys, fmt.Sprintf("%sgid_attrs/ndevs/%d", dir, i)); err == nil {
			g.setPrefix(prefix(strings.TrimSpace(string(dev)), g.ip()))
		}
		gids = append(gids, g)
	}
	return gids
}

// interfacePrefix is readGIDs's prefix on this host.
func interfacePrefix(netdev string, a netip.Addr) int {
	ifc, err := net.InterfaceByName(netdev)
	if err != nil {
		return 0
	}
	addrs, err := ifc.Addrs()
	if err != nil {
		return 0
	}
	for _, x := range addrs {
		if p, err := netip.ParsePrefix(x.String()); err == nil && p.Addr() == a {
			return p.Bits()
		}
	}
	return 0
}

// usableGIDs picks what peers are told, best first: by the options on RoCE, entry 0 (the subnet
// manager's) or the fixed one on InfiniBand.
func usableGIDs(all []gid, o *Options, ethernet bool) ([]gid, error) {
	if o.GIDIndex != nil {
		for _, g := range all {
			if g.index == *o.GIDIndex {
				return []gid{g}, nil
			}
		}
		return nil, fmt.Errorf("GID table has no entry %d (it has %s)", *o.GIDIndex, listGIDs(all))
	}
	if !ethernet {
		if len(all) == 0 {
			return nil, fmt.Errorf("GID table is empty")
		}
		return all[:1], nil
	}
	var use []gid
	for _, g := range all {
		family := 6
		if g.ip().Is4() {
			family = 4
		}
		if (g.typ == gidV2) == (o.RoCEVersion == 2) && (o.AddrFamily == 0 || o.AddrFamily == family) {
			use = append(use, g)
		}
	}
	if len(use) == 0 {
		return nil, fmt.Errorf("no GID for RoCE v%d, address family %s, in the table (it has %s): does the interface have an address?",
			o.RoCEVersion, map[int]string{0: "any", 4: "IPv4", 6: "IPv6"}[o.AddrFamily], listGIDs(all))
	}
	slices.SortStableFunc(use, func(a, b gid) int { return scope(b) - scope(a) })
	return use[:min(len(use), maxGIDs)], nil
}

func listGIDs(gids []gid) string {
	if len(gids) == 0 {
		return "none"
	}
	s := make([]string, len(gids))
	for i, g := range gids {
		s[i] = fmt.Sprintf("%d: %v", g.index, g)
	}
	return strings.Join(s, ", ")
}

// scope orders addresses: link-local last, IPv4 first.
func scope(g gid) int {
	switch a := g.ip(); {
	case a.IsLinkLocalUnicast():
		return 0
	case a.Is4():
		return 2
	}
	return 1
}

// chooseGIDs picks the pair through which two ports talk. Both ends come to the same pair, because the
// comparison does not depend on the side: neither link-local, then on one network, then IPv4, then the
// longest common prefix, then the smallest addresses.
func chooseGIDs(mine, theirs []gid) (a, b gid, err error) {
	best := -1
	for _, m := range mine {
		for _, t := range theirs {
			sm, st := scope(m), scope(t)
			if m.typ != t.typ || sm != st {
				continue
			}
			common := commonPrefix(m.addr, t.addr)
			score := common
			if sm == 2 {
				score += 1 << 8
			}
			if common >= m.prefix && common >= t.prefix {
				score += 1 << 9
			}
			if sm > 0 {
				score += 1 << 10
			}
			if score > best || score == best && lessPair(m, t, a, b) {
				best, a, b = score, m, t
			}
		}
	}
	if best < 0 {
		return a, b, fmt.Errorf("no common kind of GID: here %s, at the peer %s", listGIDs(mine), listGIDs(theirs))
	}
	return a, b, nil
}

func lessPair(a1, b1, a2, b2 gid) bool {
	key := func(a, b gid) []byte {
		if bytes.Compare(a.addr[:], b.addr[:]) > 0 {
			a, b = b, a
		}
		return append(append([]byte(nil), a.addr[:]...), b.addr[:]...)
	}
	return bytes.Compare(key(a1, b1), key(a2, b2)) < 0
}

func commonPrefix(a, b [16]byte) int {
	for i := range a {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 128
}
