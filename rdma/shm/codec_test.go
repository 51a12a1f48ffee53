package shm

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func sampleAddress() address {
	a := address{pid: 4711, endpoint: 3, host: host{netns: 4026531840, pidns: 4026531836}}
	for i := range 16 {
		a.host.boot[i], a.name[i], a.token[i] = byte(0x10+i), byte(0x20+i), byte(0x30+i)
	}
	return a
}

func sampleMessage() message {
	m := message{kind: open, code: 2, endpoint: 3, from: 4, depth: 64, key: 0x1122334455667788, length: 1 << 40}
	for i := range 16 {
		m.name[i], m.nonce[i] = byte(0x40+i), byte(0x50+i)
	}
	for i := range m.proof {
		m.proof[i] = byte(0x60 + i)
	}
	return m
}

func encodeMessage(m message) []byte {
	var b [messageSize]byte
	m.encode(&b)
	return b[:]
}

// The bytes are what other versions of this package read: a change needs a new version number.
func TestGoldenBytes(t *testing.T) {
	for name, b := range map[string][]byte{
		"address.hex": sampleAddress().encode(),
		"message.hex": encodeMessage(sampleMessage()),
	} {
		path := filepath.Join("testdata", name)
		got := hex.Dump(b)
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), got)
	}
	a, err := decodeAddress(sampleAddress().encode())
	require.NoError(t, err)
	require.Equal(t, sampleAddress(), a)
	m, err := decodeMessage(encodeMessage(sampleMessage()))
	require.NoError(t, err)
	require.Equal(t, sampleMessage(), m)
}

func TestOtherVersionsAreRefused(t *testing.T) {
	b := sampleAddress().encode()
	b[4]++
	_, err := decodeAddress(b)
	require.ErrorContains(t, err, "version 2")
	b = encodeMessage(sampleMessage())
	b[4]++
	_, err = decodeMessage(b)
	require.ErrorContains(t, err, "version 2")
}

// What decodes encodes to the same bytes, so no byte is without a meaning.
func FuzzAddress(f *testing.F) {
	f.Add(sampleAddress().encode())
	f.Add([]byte("gshm"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := decodeAddress(b); err == nil && !bytes.Equal(a.encode(), b) {
			t.Fatalf("%x decodes to %+v, which is other bytes", b, a)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(encodeMessage(sampleMessage()))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMessage(b); err == nil && !bytes.Equal(encodeMessage(m), b) {
			t.Fatalf("%x decodes to %+v, which is other bytes", b, m)
		}
	})
}

func TestProofDependsOnEverything(t *testing.T) {
	m := sampleMessage()
	base := prove(token{1}, open, [16]byte{2}, &m)
	require.True(t, sameProof(base, prove(token{1}, open, [16]byte{2}, &m)))
	for name, other := range map[string]func() [32]byte{
		"token":       func() [32]byte { return prove(token{2}, open, [16]byte{2}, &m) },
		"side":        func() [32]byte { return prove(token{1}, opened, [16]byte{2}, &m) },
		"their nonce": func() [32]byte { return prove(token{1}, open, [16]byte{3}, &m) },
		"own nonce":   func() [32]byte { m := m; m.nonce[0]++; return prove(token{1}, open, [16]byte{2}, &m) },
		"device":      func() [32]byte { m := m; m.name[0]++; return prove(token{1}, open, [16]byte{2}, &m) },
		"endpoint":    func() [32]byte { m := m; m.endpoint++; return prove(token{1}, open, [16]byte{2}, &m) },
		"from":        func() [32]byte { m := m; m.from++; return prove(token{1}, open, [16]byte{2}, &m) },
	} {
		require.False(t, sameProof(base, other()), name)
	}
}

func TestHostsThatCannotReachEachOther(t *testing.T) {
	h := sampleAddress().host
	require.NoError(t, h.reaches(h))
	other := h
	other.boot[0]++
	require.ErrorIs(t, h.reaches(other), rdma.ErrUnavailable)
	require.ErrorContains(t, h.reaches(other), "another host")
	other = h
	other.netns++
	require.ErrorIs(t, h.reaches(other), rdma.ErrUnavailable)
	require.ErrorContains(t, h.reaches(other), "network namespace")
	require.NoError(t, h.reaches(host{}), "what is unknown is tried")
	require.NoError(t, host{}.reaches(h))
}
