package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
)

func exampleAddress() *address {
	return &address{
		link: 2, mtu: 5, lid: 7, data: queueAddress{0x11, 0xabcdef}, control: queueAddress{0x12, 1}, name: "mlx5_0:1",
		gids: []gid{testGID(-1, gidV2, 24, "10.0.0.1"), testGID(-1, gidV2, 64, "2001:db8::1")},
	}
}

func TestAddressRoundTrip(t *testing.T) {
	want := exampleAddress()
	got, err := decodeAddress(want.encode())
	require.NoError(t, err)
	assert.Equal(t, want, got)
}

func TestAddressRefused(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"empty":        func(b []byte) []byte { return nil },
		"magic":        func(b []byte) []byte { b[0] = 'x'; return b },
		"link":         func(b []byte) []byte { b[4] = 3; return b },
		"MTU 0":        func(b []byte) []byte { b[5] = 0; return b },
		"MTU 6":        func(b []byte) []byte { b[5] = 6; return b },
		"QP number":    func(b []byte) []byte { b[11] = 1; return b },
		"no GID":       func(b []byte) []byte { b[24] = 0; return b },
		"too many":     func(b []byte) []byte { b[24] = 9; return b },
		"GID type":     func(b []byte) []byte { b[26] = 0; return b },
		"prefix":       func(b []byte) []byte { b[27] = 129; return b },
		"short":        func(b []byte) []byte { return b[:len(b)-1] },
		"long":         func(b []byte) []byte { return append(b, 0) },
		"unprintable":  func(b []byte) []byte { b[len(b)-1] = 7; return b },
		"name too big": func(b []byte) []byte { b[25] = 65; return append(b, make([]byte, 57)...) },
	} {
		_, err := decodeAddress(change(exampleAddress().encode()))
		assert.ErrorIs(t, err, errAddress, name)
	}
}

// Whatever is accepted says the same when it is encoded again.
func FuzzAddress(f *testing.F) {
	f.Add(exampleAddress().encode())
	f.Add([]byte(addressMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAddress(b)
		if err != nil {
			return
		}
		assert.Equal(t, b, a.encode())
	})
}

func exampleBundleAddress() *bundleAddress {
	rail := exampleAddress().encode()
	return &bundleAddress{ports: 2, depth: 50, inbox: rdma.RemoteRegion{Addr: 4096, Key: 7, Len: uint64(inboxBytes(50))}, rails: [][]byte{rail, rail, rail}}
}

func TestBundleAddressRefused(t *testing.T) {
	got, err := decodeBundleAddress(exampleBundleAddress().encode())
	require.NoError(t, err)
	assert.Equal(t, exampleBundleAddress(), got)
	for name, change := range map[string]func(b []byte) []byte{
		"empty":         func(b []byte) []byte { return nil },
		"magic":         func(b []byte) []byte { b[0] = 'x'; return b },
		"one pair's":    func([]byte) []byte { return exampleAddress().encode() },
		"no rail":       func(b []byte) []byte { b[4] = 0; return b },
		"fewer rails":   func(b []byte) []byte { b[4] = 2; return b },
		"more rails":    func(b []byte) []byte { b[4] = 4; return b },
		"17 rails":      func(b []byte) []byte { b[4] = 17; return b },
		"no port":       func(b []byte) []byte { b[5] = 0; return b },
		"3 ports":       func(b []byte) []byte { b[5] = 3; return b },
		"no depth":      func(b []byte) []byte { b[6] = 0; return b },
		"other depth":   func(b []byte) []byte { b[6]++; return b },
		"huge depth":    func(b []byte) []byte { b[9] = 255; return b },
		"inbox length":  func(b []byte) []byte { b[26]++; return b },
		"rail":          func(b []byte) []byte { b[bundleFixed+2] = 'x'; return b },
		"rail's length": func(b []byte) []byte { b[bundleFixed]++; return b },
		"short":         func(b []byte) []byte { return b[:len(b)-1] },
		"long":          func(b []byte) []byte { return append(b, 0) },
	} {
		_, err := decodeBundleAddress(change(exampleBundleAddress().encode()))
		assert.ErrorIs(t, err, errAddress, name)
	}
}

func FuzzBundleAddress(f *testing.F) {
	f.Add(exampleBundleAddress().encode())
	f.Add([]byte(bundleMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeBundleAddress(b)
		if err != nil {
			return
		}
		assert.Equal(t, b, a.encode())
	})
}
