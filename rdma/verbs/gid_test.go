package verbs

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func testGID(index int, typ gidType, prefix int, addr string) gid {
	a := netip.MustParseAddr(addr)
	if a.Is4() {
		prefix += 96
	}
	return gid{index: index, typ: typ, prefix: prefix, addr: a.As16()}
}

// sysGIDs makes a GID table as /sys/class/infiniband shows it.
func sysGIDs(rows map[int][3]string) fstest.MapFS {
	fs := fstest.MapFS{}
	for i := range 8 {
		addr := "0000:0000:0000:0000:0000:0000:0000:0000"
		if r, ok := rows[i]; ok {
			addr = r[0]
			if r[1] != "" { // a hole: the address is there, its type cannot be read
				fs[fmt.Sprintf("d/ports/1/gid_attrs/types/%d", i)] = &fstest.MapFile{Data: []byte(r[1] + "\n")}
				fs[fmt.Sprintf("d/ports/1/gid_attrs/ndevs/%d", i)] = &fstest.MapFile{Data: []byte(r[2] + "\n")}
			}
		}
		fs[fmt.Sprintf("d/ports/1/gids/%d", i)] = &fstest.MapFile{Data: []byte(addr + "\n")}
	}
	return fs
}

// A mlx5 port as seen inside a container: link-local entries first, a hole, then the ones to use.
func TestReadGIDs(t *testing.T) {
	fs := sysGIDs(map[int][3]string{
		0: {"fe80:0000:0000:0000:5054:00ff:fe77:0201", "IB/RoCE v1", "eth0"},
		1: {"fe80:0000:0000:0000:5054:00ff:fe77:0201", "RoCE v2", "eth0"},
		2: {"0000:0000:0000:0000:0000:ffff:0a01:0005", "", ""},
		3: {"0000:0000:0000:0000:0000:ffff:0a4d:0201", "IB/RoCE v1", "eth0"},
		4: {"0000:0000:0000:0000:0000:ffff:0a4d:0201", "RoCE v2", "eth0"},
		5: {"2001:0db8:0000:0000:0000:0000:0000:0001", "RoCE v2", "eth0"},
		6: {"not a gid", "RoCE v2", "eth0"},
	})
	prefix := func(dev string, a netip.Addr) int {
		if dev == "eth0" && a.Is4() {
			return 24
		}
		return 0
	}
	all := readGIDs(fs, "d", 1, 8, prefix)
	require.Len(t, all, 5)
	assert.Equal(t, testGID(4, gidV2, 24, "10.77.2.1"), all[3])

	use, err := usableGIDs(all, &Options{RoCEVersion: 2}, true)
	require.NoError(t, err)
	assert.Equal(t, []int{4, 5, 1}, indexes(use), "IPv4, IPv6, link-local")
	use, err = usableGIDs(all, &Options{RoCEVersion: 2, AddrFamily: 6}, true)
	require.NoError(t, err)
	assert.Equal(t, []int{5, 1}, indexes(use))
	use, err = usableGIDs(all, &Options{RoCEVersion: 1}, true)
	require.NoError(t, err)
	assert.Equal(t, []int{3, 0}, indexes(use))
	fixed := 3
	use, err = usableGIDs(all, &Options{RoCEVersion: 2, GIDIndex: &fixed}, true)
	require.NoError(t, err)
	assert.Equal(t, []int{3}, indexes(use))
	fixed = 2
	_, err = usableGIDs(all, &Options{RoCEVersion: 2, GIDIndex: &fixed}, true)
	assert.ErrorContains(t, err, "no entry 2 (it has 0: fe80::5054:ff:fe77:201 (IB/RoCE v1)")
	_, err = usableGIDs(all[:1], &Options{RoCEVersion: 2}, true)
	assert.ErrorContains(t, err, "no GID for RoCE v2")
	use, err = usableGIDs(all, &Options{}, false)
	require.NoError(t, err)
	assert.Equal(t, []int{0}, indexes(use), "InfiniBand: entry 0")
}

func indexes(gids []gid) []int {
	var is []int
	for _, g := range gids {
		is = append(is, g.index)
	}
	return is
}

func TestChooseGIDs(t *testing.T) {
	for _, tt := range []struct {
		name         string
		mine, theirs []gid
		a, b         string
	}{
		{
			"one network",
			[]gid{testGID(1, gidV2, 24, "10.0.0.1")}, []gid{testGID(1, gidV2, 24, "10.0.0.2")},
			"10.0.0.1", "10.0.0.2",
		}, {
			"the common one of two networks",
			[]gid{testGID(1, gidV2, 24, "10.0.0.1"), testGID(2, gidV2, 24, "10.0.1.1")},
			[]gid{testGID(1, gidV2, 24, "10.0.1.2"), testGID(2, gidV2, 24, "10.0.2.2")},
			"10.0.1.1", "10.0.1.2",
		}, {
			"routed: link-local does not route",
			[]gid{testGID(0, gidV2, 64, "fe80::1"), testGID(1, gidV2, 32, "10.77.1.1")},
			[]gid{testGID(0, gidV2, 64, "fe80::2"), testGID(1, gidV2, 32, "10.77.1.2")},
			"10.77.1.1", "10.77.1.2",
		}, {
			"IPv6 of one network before IPv4 of two",
			[]gid{testGID(1, gidV2, 24, "10.0.0.1"), testGID(2, gidV2, 64, "2001:db8::1")},
			[]gid{testGID(1, gidV2, 24, "10.9.0.1"), testGID(2, gidV2, 64, "2001:db8::2")},
			"2001:db8::1", "2001:db8::2",
		}, {
			"only link-local",
			[]gid{testGID(0, gidV2, 64, "fe80::1")}, []gid{testGID(0, gidV2, 64, "fe80::2")},
			"fe80::1", "fe80::2",
		},
	} {
		a, b, err := chooseGIDs(tt.mine, tt.theirs)
		require.NoError(t, err, tt.name)
		assert.Equal(t, tt.a, a.ip().String(), tt.name)
		assert.Equal(t, tt.b, b.ip().String(), tt.name)
	}
	_, _, err := chooseGIDs([]gid{testGID(1, gidV2, 24, "10.0.0.1")}, []gid{testGID(1, gidIB, 24, "10.0.0.2")})
	assert.ErrorContains(t, err, "no common kind of GID")
	_, _, err = chooseGIDs([]gid{testGID(1, gidV2, 24, "10.0.0.1")}, []gid{testGID(1, gidV2, 64, "2001:db8::2")})
	assert.Error(t, err)
}

// Both ends come to the same pair, or both to none.
func TestChooseGIDsIsSymmetric(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) gid {
		base := rapid.SampledFrom([]string{"10.0.0.0", "10.0.1.0", "192.168.0.0", "fe80::", "2001:db8::", "2001:db8:1::"}).Draw(t, "net")
		g := testGID(0, rapid.SampledFrom([]gidType{gidIB, gidV2}).Draw(t, "type"), 24, base)
		g.addr[15] = rapid.Byte().Draw(t, "host")
		return g
	})
	list := rapid.SliceOfN(one, 1, maxGIDs)
	rapid.Check(t, func(t *rapid.T) {
		mine, theirs := list.Draw(t, "mine"), list.Draw(t, "theirs")
		a, b, err := chooseGIDs(mine, theirs)
		b2, a2, err2 := chooseGIDs(theirs, mine)
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%v, %v", err, err2)
		}
		if err == nil && (a.addr != a2.addr || b.addr != b2.addr || a.typ != b2.typ) {
			t.Fatalf("here %v → %v, there %v → %v", a, b, b2, a2)
		}
	})
}
