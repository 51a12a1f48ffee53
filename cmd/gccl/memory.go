package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// meminfo is where Linux tells how much memory programs can still have.
const meminfo = "/proc/meminfo"

var availableKiB = regexp.MustCompile(`(?m)^MemAvailable:\s+(\d+) kB$`)

// roomFor refuses buffers of which this host's memory cannot hold two for each rank: touched, they would have the
// kernel end processes. Where a system does not tell, nothing is refused; nor by a rank that another process has started, which
// has asked for all of them before some took what there is.
func roomFor(ranks int, bytes float64) error {
	if os.Getenv(rankEnv) != "" {
		return nil
	}
	b, err := os.ReadFile(meminfo)
	if err != nil {
		return nil
	}
	m := availableKiB.FindSubmatch(b)
	if m == nil {
		return nil
	}
	kib, err := strconv.ParseFloat(string(m[1]), 64)
	if need := 2 * float64(max(1, ranks)) * bytes; err == nil && need > kib*1024 {
		return fmt.Errorf("two buffers for each of %d ranks take %.3g GiB, %.3g GiB of memory are available: choose smaller sizes (-e)",
			max(1, ranks), need/(1<<30), kib/(1<<20))
	}
	return nil
}
