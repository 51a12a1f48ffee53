package tcp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testInterfaces() []iface {
	p := netip.MustParsePrefix
	return []iface{
		{name: "lo", up: true, loopback: true, addrs: []netip.Prefix{p("127.0.0.1/8"), p("::1/128")}},
		{name: "eth0", up: true, addrs: []netip.Prefix{p("192.0.2.2/24"), p("2001:db8::2/64"), p("fe80::1/64")}},
		{name: "eth1", up: true, addrs: []netip.Prefix{p("198.51.100.2/24"), p("169.254.7.7/16")}},
		{name: "docker0", up: false, addrs: []netip.Prefix{p("172.17.0.1/16")}},
		{name: "veth9", up: true, addrs: []netip.Prefix{p("fe80::9/64")}},
	}
}

func addrsOf(as []localAddr) (out []string) {
	for _, a := range as {
		out = append(out, a.prefix.Addr().String())
	}
	return out
}

func TestChooseAddrs(t *testing.T) {
	loopback := []string{"127.0.0.1", "::1"}
	for _, c := range []struct {
		want []string
		get  []string
	}{
		{nil, []string{"192.0.2.2", "2001:db8::2", "198.51.100.2"}},
		{[]string{"eth1"}, []string{"198.51.100.2"}},
		{[]string{"^eth1"}, []string{"192.0.2.2", "2001:db8::2"}},
		{[]string{"eth*", "^eth0"}, []string{"198.51.100.2"}},
		{[]string{"lo"}, nil},
		{[]string{"ib*"}, nil},
	} {
		got, err := chooseAddrs(testInterfaces(), c.want)
		require.NoError(t, err)
		assert.Equal(t, append(c.get, loopback...), addrsOf(got), "%q", c.want)
	}
}

// A name that does not exist is a mistake, and the message lists those that do.
func TestUnknownInterface(t *testing.T) {
	_, err := chooseAddrs(testInterfaces(), []string{"eth7"})
	assert.EqualError(t, err, `tcp: there is no interface "eth7"; this host has `+
		`lo (up; 127.0.0.1/8, ::1/128), eth0 (up; 192.0.2.2/24, 2001:db8::2/64, fe80::1/64), `+
		`eth1 (up; 198.51.100.2/24, 169.254.7.7/16), docker0 (down; 172.17.0.1/16), veth9 (up; fe80::9/64)`)
	_, err = chooseAddrs(testInterfaces(), []string{"eth["})
	assert.ErrorContains(t, err, "malformed")
	_, err = chooseAddrs(testInterfaces()[1:], []string{"docker0"})
	assert.ErrorContains(t, err, "no usable address")
}
