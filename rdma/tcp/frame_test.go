package tcp

import (
	"bytes"
	"hash/crc32"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The bytes of docs/wire-tcp.md, section "Frames".
func TestHeaderBytes(t *testing.T) {
	h := header{
		kind: frameWrite, flags: flagImm | flagChecksum, imm: 0x01020304, key: 0x1112131415161718,
		addr: 0x2122232425262728, length: 0x31323334, total: 0x31323335, seq: 0x4142434445464748, crc: 0x51525354,
	}
	b := make([]byte, headerLen)
	h.put(b)
	assert.Equal(t, []byte{
		1, 3, 0, 0, 4, 3, 2, 1,
		0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
		0x34, 0x33, 0x32, 0x31, 0x35, 0x33, 0x32, 0x31,
		0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41,
		0x54, 0x53, 0x52, 0x51,
	}, b[:44])
	assert.Equal(t, crc32.Checksum(b[:44], crc32.MakeTable(crc32.Castagnoli)), uint32(b[44])|uint32(b[45])<<8|uint32(b[46])<<16|uint32(b[47])<<24)
}

// A header that is damaged anywhere is refused.
func TestHeaderDamage(t *testing.T) {
	h := header{kind: frameWrite, flags: flagImm, key: 1, length: 5, total: 5}
	b := make([]byte, headerLen)
	h.put(b)
	var got header
	require.NoError(t, got.parse(b))
	require.Equal(t, h, got)
	for bit := range 8 * headerLen {
		bad := bytes.Clone(b)
		bad[bit/8] ^= 1 << (bit % 8)
		assert.ErrorIs(t, got.parse(bad), errFrame, "bit %d", bit)
	}
}

// A header with a right checksum and wrong contents is refused too.
func TestHeaderContents(t *testing.T) {
	for name, h := range map[string]header{
		"type 0":               {},
		"type 7":               {kind: 7},
		"unknown flag":         {kind: frameWrite, flags: 8},
		"landed with flags":    {kind: frameLanded, flags: flagAck},
		"lost with length":     {kind: frameLost, length: 1, total: 1},
		"again with total":     {kind: frameAgain, total: 1},
		"piece beyond total":   {kind: frameWrite, length: 6, total: 5},
		"empty piece":          {kind: frameWrite, length: 0, total: 5},
		"too long":             {kind: frameWrite, length: 1, total: maxMessage + 1},
		"farewell with length": {kind: frameBye, length: 1, total: 1},
		"failure with flags":   {kind: frameFail, flags: flagImm},
	} {
		b := make([]byte, headerLen)
		h.put(b)
		var got header
		assert.ErrorIs(t, got.parse(b), errFrame, name)
	}
}

func FuzzHeader(f *testing.F) {
	h := header{kind: frameWrite, flags: flagImm, key: 1, length: 5, total: 5}
	b := make([]byte, headerLen)
	h.put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerLen {
			return
		}
		// The checksum would hide the checks behind it.
		b = b[:headerLen]
		sum := crc32.Checksum(b[:44], castagnoli)
		b[44], b[45], b[46], b[47] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		var h header
		if h.parse(b) != nil {
			return
		}
		if h.length > h.total || h.total > maxMessage || h.kind < frameWrite || h.kind > frameAgain {
			t.Fatalf("accepted %+v", h)
		}
		again := make([]byte, headerLen)
		if h.put(again); !bytes.Equal(b, again) {
			t.Fatalf("% x decodes to %+v, which is % x", b, h, again)
		}
	})
}

func drawAddress(t *rapid.T) *address {
	a := &address{sockets: rapid.Uint8Range(1, maxSockets).Draw(t, "sockets")}
	copy(a.name[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "name"))
	copy(a.token[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "token"))
	copy(a.host[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "host"))
	for range rapid.IntRange(0, 8).Draw(t, "candidates") {
		n := rapid.SampledFrom([]int{4, 16}).Draw(t, "family")
		ip, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "ip"))
		if ip.Is4In6() {
			continue
		}
		c := netip.AddrPortFrom(ip, rapid.Uint16Range(1, 65535).Draw(t, "port"))
		if rapid.Bool().Draw(t, "loopback") {
			a.loopback = append(a.loopback, c)
		} else {
			a.routable = append(a.routable, c)
		}
	}
	return a
}

func TestAddressRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawAddress(t)
		got, err := parseAddress(a.encode())
		if err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, a, got)
	})
}

func FuzzAddress(f *testing.F) {
	a := address{sockets: 1, routable: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80"), netip.MustParseAddrPort("[2001:db8::1]:80")}}
	f.Add(a.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseAddress(b)
		if err != nil {
			return
		}
		again, err := parseAddress(a.encode())
		if err != nil {
			t.Fatal(err)
		}
		assert.Equal(t, a, again)
	})
}

func FuzzHello(f *testing.F) {
	f.Add((&hello{socket: 1, sockets: 2}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) != helloLen {
			return
		}
		h, err := parseHello(b)
		if err == nil && !bytes.Equal(h.encode(), b) {
			t.Fatalf("% x decodes to %+v", b, h)
		}
	})
}
