package bootstrap

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A port for ranks of one host costs one socket, on loopback; with a filter of interfaces it is still there.
func TestPortOfOneHost(t *testing.T) {
	for _, filter := range []string{"", "lo"} {
		p, err := OpenPort(t.Context(), Config{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 4, Interface: filter})
		require.NoError(t, err)
		require.Len(t, p.Addrs(), 1)
		a, err := netip.ParseAddrPort(p.Addrs()[0])
		require.NoError(t, err)
		require.True(t, a.Addr().IsLoopback(), "%v", a)
		require.NotZero(t, a.Port())
		p.Close()
	}
}
