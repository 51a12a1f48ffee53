package collective

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/gccl/gccl/internal/cpu"
)

// hello is what ranks tell each other first.
type hello struct {
	Version   int      `json:"version"` // of this exchange
	Pid       int      `json:"pid"`
	Host      string   `json:"host"`      // name, for people
	HostID    string   `json:"hostID"`    // equal where ranks share a kernel
	Kernel    string   `json:"kernel"`    // equal where ranks share cores, even if HostID pretends several hosts
	CPUs      cpu.Set  `json:"cpus"`      // that this rank may run on
	Providers []string `json:"providers"` // of the devices this rank has, in order of preference
	// Agreed are the settings that must be the same everywhere, by name.
	Agreed map[string]string `json:"agreed"`
	// Addrs are where this rank can be reached after a failure; none: nowhere.
	Addrs []string `json:"addrs,omitempty"`
	// Failed says why this rank cannot go on, so that the others need not wait to find out.
	Failed string `json:"failed,omitempty"`
	// Epoch is the fingerprint base that rank 0 drew for this communicator.
	Epoch uint64 `json:"epoch,omitempty"`
}

const helloVersion = 2

// kernelID identifies the running kernel, which is what processes that share memory share.
func kernelID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		name, _ := os.Hostname()
		return "name:" + name
	}
	return strings.TrimSpace(string(b))
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
		"GCCL_TCP_ENCRYPT":  fmt.Sprint(c.TCPEncrypt),
		"GCCL_TUNING_FILE":  tuning.file.Digest(),
		"algorithms":        tuning.digest,
	}
}

// decodeHellos reads the ranks' hellos and refuses ranks that have failed or are set up differently
// from rank 0. All ranks find the same.
func decodeHellos(blobs [][]byte) ([]hello, error) {
	hs := make([]hello, len(blobs))
	for r, b := range blobs {
		if err := json.Unmarshal(b, &hs[r]); err != nil {
			return nil, fmt.Errorf("%w: hello of rank %d: %v", ErrInternal, r, err)
		}
		if hs[r].Version != helloVersion {
			return nil, fmt.Errorf("%w: rank %d speaks version %d of the exchange, rank 0 version %d", ErrMismatch, r, hs[r].Version, hs[0].Version)
		}
		if hs[r].Failed != "" {
			return nil, fmt.Errorf("%w: rank %d (%s): %s", ErrGaveUp, r, hs[r].Host, hs[r].Failed)
		}
	}
	for r := range hs {
		for _, name := range slices.Sorted(maps.Keys(hs[0].Agreed)) {
			v := hs[0].Agreed[name]
			if theirs := hs[r].Agreed[name]; theirs != v {
				return nil, fmt.Errorf("%w: %s is %q on rank 0 (%s) and %q on rank %d (%s): set it alike everywhere", ErrMismatch, name, v, hs[0].Host, theirs, r, hs[r].Host)
			}
		}
	}
	return hs, nil
}

// describe names a rank for messages.
func (c *Comm) describe(r int) string {
	if r < 0 || r >= len(c.peers) {
		return fmt.Sprintf("rank %d", r)
	}
	return fmt.Sprintf("rank %d (pid %d on %s)", r, c.peers[r].Pid, c.peers[r].Host)
}
