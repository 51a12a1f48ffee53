package link

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A bit of the call or of the payload that changes on the way, by whatever way, is found before anybody
// uses the message, and the error names the rank, the lane and the message. It is not taken for another call.
func TestChecksumFindsEveryFlippedBit(t *testing.T) {
	g := Geometry{Lanes: 2, Slots: 4, SlotBytes: 320, Checksum: true}
	for name, pair := range map[string]func() (a, b *Mesh){
		"mapped": func() (a, b *Mesh) { return pair(t, g, false) },
		"posted": func() (a, b *Mesh) { return pair(t, g, true) },
		"shm":    func() (a, b *Mesh) { return sharedPair(t, Config{Geometry: g}) },
	} {
		a, b := pair()
		s, r := a.Peer(1).Sender(1), b.Peer(0).Receiver(1)
		paid, lines := 0, 0
		for i, n := range []int{0, 1, 24, 25, 32, 56, 64, 184, 185, 248, 249, 320} {
			call := &Call{FP: 7, A: 1, B: 2}
			sent := bytes.Repeat([]byte{0x5A}, n)
			_, err := a.Progress() // credits
			require.NoError(t, err)
			buf, ok := s.Reserve(n)
			require.True(t, ok)
			require.Len(t, buf, n)
			copy(buf, sent)
			s.Commit(n, call)
			_, err = b.Progress()
			require.NoError(t, err)
			section := b.Peer(0).section
			var line, payload []byte
			if name == "posted" {
				line = section[posted{g}.entryOffset(1, i):]
				payload = line[lineBytes:]
			} else {
				line, payload = section[g.headerOffset(1, lines):], section[g.payloadOffset(1)+paid%g.Slots*g.roomBytes():]
			}
			damage := []([]byte){line[8:32]} // the call, and the rest
			switch most, rest := g.spreadMost(), n+sumBytes; {
			case rest <= InlineBytes:
				damage = append(damage, line[32:][:rest])
			case name != "posted" && rest <= most:
				damage = append(damage, line[32:64])
				for rest -= InlineBytes; rest > 0; rest -= restBytes {
					line = line[lineBytes:]
					damage = append(damage, line[8:][:min(rest, restBytes)])
				}
				lines += headerLines(n+sumBytes) - 1
			default:
				damage = append(damage, payload[:rest])
				paid++
			}
			lines++
			for _, part := range damage {
				for bit := range 8 * len(part) {
					part[bit/8] ^= 1 << (bit % 8)
					_, err := r.Peek(call)
					var c *Corrupt
					require.ErrorAs(t, err, &c, "%s: bit %d of a message of %d", name, bit, n)
					require.Equal(t, 0, c.Peer)
					require.Equal(t, 1, c.Lane)
					_, ok := r.Look()
					require.False(t, ok, "%s: bit %d of a message of %d is shown", name, bit, n)
					part[bit/8] ^= 1 << (bit % 8)
				}
			}
			seen, ok := r.Look()
			require.True(t, ok)
			require.Equal(t, *call, seen)
			m, err := r.Peek(call)
			require.NoError(t, err, fmt.Sprint(name, n))
			require.Equal(t, n, m.Len)
			require.Equal(t, sent, append([]byte{}, m.Data...))
			r.Advance(n)
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	}
}
