package collective

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Of hellos that are the same but for what is a rank's own, each keeps its own; one that differs is found
// wherever it stands.
func TestHellosInCommon(t *testing.T) {
	encoded := func(h hello) []byte {
		b, err := h.encode()
		require.NoError(t, err)
		return b
	}
	at := func(host string, pid int, buffers string) hello {
		return hello{own: own{Pid: pid, Addrs: []string{host + ":1"}}, Version: helloVersion, Host: host, HostID: host,
			Providers: []string{"tcp"}, Agreed: map[string]string{"GCCL_BUFFSIZE": buffers, "GCCL_ALGO": ""}}
	}
	all := []hello{at("a", 1, "0"), at("b", 2, "0"), at("a", 3, "0"), at("b", 4, "0")}
	all[0].Epoch = 1<<63 + 1
	var blobs [][]byte
	for _, h := range all {
		blobs = append(blobs, encoded(h))
	}
	got, err := decodeHellos(blobs)
	require.NoError(t, err)
	require.Equal(t, all, got)

	blobs[3] = encoded(at("a", 5, "65536"))
	_, err = decodeHellos(blobs)
	require.ErrorIs(t, err, ErrMismatch)
	require.ErrorContains(t, err, `GCCL_BUFFSIZE is "0" (auto) on rank 0 (a) and "65536" on rank 3 (a)`)

	failed := at("b", 4, "0")
	failed.Failed = "no memory"
	blobs[3] = encoded(failed)
	_, err = decodeHellos(blobs)
	require.ErrorIs(t, err, ErrGaveUp)
	require.ErrorContains(t, err, "rank 3 (b): no memory")

	for _, bad := range []string{"", "{}", "{}\n", "\n{}", "{}\n{}\n{}", `{"pid":1}` + "\n" + `{"version":2}`} {
		blobs[3] = []byte(bad)
		_, err = decodeHellos(blobs)
		require.Error(t, err, "%q", bad)
	}
}

// Builds whose hellos were one line say in it which version they speak; so may others to come.
func TestHelloOfAnotherVersion(t *testing.T) {
	h := hello{Version: helloVersion}
	mine, err := h.encode()
	require.NoError(t, err)
	for _, theirs := range []string{`{"version":2,"pid":7,"host":"a"}`, "{\"pid\":7}\n{\"version\":77}"} {
		_, err = decodeHellos([][]byte{mine, []byte(theirs)})
		require.ErrorIs(t, err, ErrMismatch, theirs)
		require.ErrorContains(t, err, "rank 1 speaks version")
	}
}

// BenchmarkHellos measures what each of 1,024 ranks of one host does with the others' hellos.
func BenchmarkHellos(b *testing.B) {
	c := &Comm{catalog: catalog()}
	require.NoError(b, c.loadTuning())
	blobs := make([][]byte, 1024)
	for r := range blobs {
		h := hello{own: own{Pid: 1000 + r, Addrs: []string{"127.0.0.1:40000", "[::1]:40000"}}, Version: helloVersion, Host: "host", HostID: "id", Kernel: "id",
			Providers: []string{"shm", "tcp"}, Agreed: agreed(&c.cfg, &c.tuning)}
		var err error
		blobs[r], err = h.encode()
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeHellos(blobs); err != nil {
			b.Fatal(err)
		}
	}
}

// docs/wire.md has a row for every field.
func TestHelloPage(t *testing.T) {
	page, err := os.ReadFile("../docs/wire.md")
	require.NoError(t, err)
	for _, part := range []any{hello{}, own{Pid: 1, Addrs: []string{""}, Failed: "x", Epoch: 1}} {
		b, err := json.Marshal(part)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(b, &fields))
		require.GreaterOrEqual(t, len(fields), 4)
		for name := range fields {
			require.True(t, strings.Contains(string(page), "`"+name+"`"), name)
		}
	}
}

// Loopback leads to ranks of the same network namespace only; what is shared with other ranks stays as it is.
func TestAddressesAsSeen(t *testing.T) {
	lo, eth := "127.0.0.1:40000", "192.0.2.7:40000"
	hs := []hello{{Kernel: "k", Network: "n"}, {Kernel: "k", Network: "n"}, {Kernel: "k", Network: "m"}, {Kernel: "l", Network: "n"}, {Kernel: "l", Network: "n"}}
	for r := range hs {
		hs[r].Addrs = []string{eth, lo, "[::1]:40000"}
	}
	hs[4].Addrs = []string{lo}
	before := slices.Clone(hs)
	seen := asSeen(hs, 1)
	require.Equal(t, before, hs)
	require.Equal(t, hs[:2], seen[:2])
	require.Equal(t, []string{eth}, seen[2].Addrs)
	require.Equal(t, []string{eth}, seen[3].Addrs)
	require.Equal(t, []string{lo}, seen[4].Addrs, "it has no other")
}

// What ranks of a process find out once is not kept for ranks that never ask.
func TestSharedFindingsAreForgotten(t *testing.T) {
	var s shared
	hello := func(i int) []byte {
		h := hello{own: own{Epoch: uint64(i)}, Version: helloVersion}
		b, err := h.encode()
		require.NoError(t, err)
		return b
	}
	for i := range 10 * latestMost {
		blobs := [][]byte{hello(i), hello(i)}
		one, err := s.peers(blobs)
		require.NoError(t, err)
		require.LessOrEqual(t, len(s.peersOf.of), latestMost)
		if i%2 == 0 {
			other, err := s.peers(blobs)
			require.NoError(t, err)
			require.Same(t, &one[0], &other[0], "found once")
			require.NotContains(t, s.peersOf.of, string(blobs[0]))
		}
		require.Len(t, s.peersOf.order, len(s.peersOf.of))
	}
}
