package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
