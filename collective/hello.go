package collective

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/gccl/gccl/internal/cpu"
)

// hello is what ranks tell each other first.
type hello struct {
	own       `json:"-"`
	Version   int      `json:"version"`   // of this exchange
	Host      string   `json:"host"`      // name, for people
	HostID    string   `json:"hostID"`    // equal where ranks share a kernel and a network namespace
	Kernel    string   `json:"kernel"`    // equal where ranks share cores, even if HostID pretends several hosts
	Network   string   `json:"network"`   // equal where ranks with the same Kernel share loopback and abstract sockets
	CPUs      cpu.Set  `json:"cpus"`      // that this rank may run on
	Providers []string `json:"providers"` // of the devices this rank has, in order of preference
	// Agreed are the settings that must be the same everywhere, by name.
	Agreed map[string]string `json:"agreed"`
}

// own is what of a hello no two ranks have alike. The rest is mostly the same for all ranks of a host, and
// read once: of very many ranks, each would else take a hundred times as long over the others' hellos.
type own struct {
	Pid int `json:"pid"`
	// Addrs are where this rank can be reached after a failure; none: nowhere.
	Addrs []string `json:"addrs,omitempty"`
	// Failed says why this rank cannot go on, so that the others need not wait to find out.
	Failed string `json:"failed,omitempty"`
	// Epoch is the fingerprint base that rank 0 drew for this communicator.
	Epoch uint64 `json:"epoch,omitempty"`
}

const helloVersion = 7

// encode writes a hello as two lines: what is the rank's own, and the rest.
func (h *hello) encode() ([]byte, error) {
	mine, err := json.Marshal(h.own)
	if err != nil {
		return nil, err
	}
	rest := *h
	rest.own = own{}
	alike, err := json.Marshal(rest)
	return slices.Concat(mine, []byte{'\n'}, alike), err
}

// lines are the two of a hello. One of an earlier version is both: all that counts is that it says so.
func lines(b []byte) (mine, alike []byte) {
	mine, alike, two := bytes.Cut(b, []byte{'\n'})
	if !two {
		alike = mine
	}
	return mine, alike
}

// kernelID identifies the running kernel, which is what processes that share memory share.
func kernelID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		return "name:" + name
	}
	return strings.TrimSpace(string(b))
}

// networkID identifies the network namespace of this process among those of its kernel; "": not known.
func networkID() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// near reports whether two ranks reach each other by loopback.
func (h *hello) near(o *hello) bool { return h.Kernel == o.Kernel && h.Network == o.Network }

// withoutLoopback is a rank's addresses as others use them that do not share its loopback: there, they lead to nobody, or to another
// process. If there are no others, they stay: it cannot be told from a rank that has none.
func withoutLoopback(addrs []string) []string {
	rest := slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool {
		a, err := netip.ParseAddrPort(addr)
		return err == nil && a.Addr().IsLoopback()
	})
	if len(rest) == 0 {
		return addrs
	}
	return rest
}

// asSeen are the ranks as rank me reaches them.
func asSeen(hs []hello, me int) []hello {
	for r := range hs {
		if !hs[r].near(&hs[me]) {
			hs = slices.Clone(hs) // which may be other ranks', too
			for ; r < len(hs); r++ {
				if !hs[r].near(&hs[me]) {
					hs[r].Addrs = withoutLoopback(hs[r].Addrs)
				}
			}
			break
		}
	}
	return hs
}

// agreed are the settings that enter plans, by the names that users know.
func agreed(c *Config, tuning *tuning) map[string]string {
	return map[string]string{
		"GCCL_PROVIDER":     c.Provider,
		"GCCL_NCHANNELS":    fmt.Sprint(c.Channels),
		"GCCL_BUFFSIZE":     fmt.Sprint(c.BufferBytes),
		"GCCL_SLOTS":        fmt.Sprint(c.Slots),
		"GCCL_LAZY":         fmt.Sprint(c.Lazy),
		"GCCL_CHECKSUM":     fmt.Sprint(c.Checksum),
		"GCCL_ALGO":         tuning.rules.String(),
		"GCCL_REPRODUCIBLE": fmt.Sprint(c.Reproducible),
		"GCCL_IB_QPS":       fmt.Sprint(max(1, c.IBQueuePairs)),
		"GCCL_TCP_ENCRYPT":  fmt.Sprint(c.TCPEncrypt),
		"GCCL_TUNING_FILE":  tuning.file.Digest(),
		"algorithms":        tuning.digest,
	}
}

// decodeHellos reads the ranks' hellos. Ranks that have failed, or are set up differently from rank 0, are a
// misfit. All ranks find the same.
func decodeHellos(blobs [][]byte) ([]hello, error) {
	hs := make([]hello, len(blobs))
	known := make(map[string]int) // by the second line
	var wrong misfit
	for r, b := range blobs {
		mine, rest := lines(b)
		if first, ok := known[string(rest)]; ok {
			hs[r] = hs[first]
		} else if err := json.Unmarshal(rest, &hs[r]); err != nil {
			wrong.blame(r, ErrInternal, "hello of rank %d: %v", r, err)
			continue
		} else {
			known[string(rest)] = r
		}
		hs[r].own = own{}
		switch err := json.Unmarshal(mine, &hs[r].own); {
		case err != nil:
			wrong.blame(r, ErrInternal, "hello of rank %d: %v", r, err)
		case hs[r].Version != helloVersion:
			wrong.blame(r, ErrMismatch, "rank %d speaks version %d of the exchange, rank 0 version %d", r, hs[r].Version, hs[0].Version)
		case hs[r].Failed != "":
			wrong.blame(r, ErrGaveUp, "rank %d (%s): %s", r, hs[r].Host, hs[r].Failed)
		}
	}
	names := slices.Sorted(maps.Keys(hs[0].Agreed))
	for r, b := range blobs {
		_, rest := lines(b)
		if first := known[string(rest)]; wrong.blames(0) || wrong.blames(r) || first < r && !wrong.blames(first) {
			continue // an earlier one with the same settings fits
		}
		for _, name := range names {
			v := hs[0].Agreed[name]
			if theirs := hs[r].Agreed[name]; theirs != v {
				wrong.blame(r, ErrMismatch, "%s is %s on rank 0 (%s) and %s on rank %d (%s): set it alike everywhere", name, shown(v), hs[0].Host, shown(theirs), r, hs[r].Host)
				break
			}
		}
	}
	if err := wrong.orNil(); err != nil {
		return nil, err
	}
	return hs, nil
}

// shown is a setting in a message. "" and 0 are what leaves the choice to the library.
func shown(v string) string {
	if v == "" || v == "0" {
		return fmt.Sprintf("%q (auto)", v)
	}
	return fmt.Sprintf("%q", v)
}

// describe names a rank for messages.
func (c *Comm) describe(r int) string {
	if r < 0 || r >= len(c.peers) {
		return fmt.Sprintf("rank %d", r)
	}
	return fmt.Sprintf("rank %d (pid %d on %s)", r, c.peers[r].Pid, c.peers[r].Host)
}
