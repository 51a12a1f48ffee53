package bootstrap

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A port for ranks that share loopback costs one socket, on loopback; with a filter of interfaces it is still there.
func TestPortOfOneHost(t *testing.T) {
	for _, filter := range []string{"", "lo"} {
		p, err := OpenPort(t.Context(), Config{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 4, Root: "localhost:29400", Interface: filter})
		require.NoError(t, err)
		require.Len(t, p.Addrs(), 1)
		a, err := netip.ParseAddrPort(p.Addrs()[0])
		require.NoError(t, err)
		require.True(t, a.Addr().IsLoopback(), "%v", a)
		require.NotZero(t, a.Port())
		p.Close()
	}
}

// Ranks of one host need not share loopback: they may be in containers. A port is reached at other addresses then, too.
func TestPortOfOneHostsContainers(t *testing.T) {
	p, err := OpenPort(t.Context(), Config{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 4, Root: "rank0:29400"})
	require.NoError(t, err)
	defer p.Close()
	local, err := localAddrs()
	require.NoError(t, err)
	for _, text := range p.Addrs() {
		if a := netip.MustParseAddrPort(text); !a.Addr().IsLoopback() {
			return
		}
	}
	require.False(t, slices.ContainsFunc(local, func(a netip.Addr) bool { return !a.IsLoopback() && !a.IsLinkLocalUnicast() }), "%v of %v", p.Addrs(), local)
}
