package netif

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

var host = []Interface{
	{"lo", true, true, addrs("127.0.0.1", "::1")},
	{"docker0", true, false, addrs("172.17.0.1")},
	{"eth0", true, false, addrs("10.0.0.5", "fe80::1%eth0", "2001:db8::5")},
	{"eth1", true, false, addrs("10.1.0.5")},
	{"eth10", true, false, addrs("10.10.0.5")},
	{"ib0", true, false, addrs("10.2.0.5")},
	{"wlan0", false, false, addrs("10.3.0.5")},
	{"veth7", true, false, nil},
}

func TestSelect(t *testing.T) {
	for filter, want := range map[string]string{
		"":                   "eth0 eth1 eth10 ib0",
		"eth":                "eth0 eth1 eth10",
		"eth1":               "eth1 eth10",
		"=eth1":              "eth1",
		"=eth1,ib0":          "eth1 ib0",
		"eth, ib":            "eth0 eth1 eth10 ib0",
		"^eth":               "ib0",
		"^=eth1":             "eth0 eth10 ib0",
		"^eth,ib":            "lo docker0",
		"^docker,lo,eth0,ib": "eth1 eth10",
		"lo":                 "lo",
		"docker":             "docker0",
	} {
		f, err := ParseFilter(filter)
		require.NoError(t, err, filter)
		got, err := f.Select(host)
		require.NoError(t, err, filter)
		var names []string
		for _, i := range got {
			names = append(names, i.Name)
		}
		assert.Equal(t, want, strings.Join(names, " "), "%q", filter)
	}
}

func TestSelectSaysWhatExists(t *testing.T) {
	f, err := ParseFilter("eht0")
	require.NoError(t, err)
	_, err = f.Select(host)
	assert.ErrorContains(t, err, `"eht0"`)
	assert.ErrorContains(t, err, "eth0 (10.0.0.5 fe80::1 2001:db8::5)")
	assert.ErrorContains(t, err, "wlan0 (down)")
	assert.ErrorContains(t, err, "veth7 (no address)")
}

func TestParseFilterRefuses(t *testing.T) {
	for _, filter := range []string{"^", "=", "a,,b", "a,^b", "a,=b", "=^a", "a b", ","} {
		_, err := ParseFilter(filter)
		assert.Error(t, err, "%q", filter)
	}
}

func TestAddrs(t *testing.T) {
	f, err := ParseFilter("lo,eth0")
	require.NoError(t, err)
	selected, err := f.Select(host)
	require.NoError(t, err)
	assert.Equal(t, addrs("10.0.0.5", "2001:db8::5"), Addrs(selected, false))
	assert.Equal(t, addrs("127.0.0.1", "10.0.0.5", "::1", "2001:db8::5"), Addrs(selected, true))
}

func TestSystem(t *testing.T) {
	all, err := System()
	require.NoError(t, err)
	assert.Contains(t, Describe(all), "lo")
}
