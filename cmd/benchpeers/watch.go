package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is the CPU time of the whole machine and of this process and its children.
type usage struct {
	at                time.Time
	busy, steal, ours time.Duration
}

// ticksPerSecond is USER_HZ, which Linux fixes for what it shows in /proc.
const ticksPerSecond = 100

func usageNow() usage {
	u := usage{at: time.Now()}
	u.busy, u.steal = machineTime(line("/proc/stat"))
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if syscall.Getrusage(who, &r) == nil {
			u.ours += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return u
}

// machineTime reads the first line of /proc/stat: user, nice and system time, and steal.
func machineTime(stat string) (busy, steal time.Duration) {
	first, _, _ := strings.Cut(stat, "\n")
	f := strings.Fields(first)
	if len(f) < 9 || f[0] != "cpu" {
		return 0, 0
	}
	ticks := func(i int) time.Duration {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(n) * time.Second / ticksPerSecond
	}
	return ticks(1) + ticks(2) + ticks(3), ticks(8)
}

// since returns the shares of all cores that others used, and that the hypervisor took, since u.
func (u usage) since(now usage, cores int) (foreign, steal float64) {
	wall := now.at.Sub(u.at).Seconds() * float64(cores)
	if wall <= 0 {
		return 0, 0
	}
	return max(0, ((now.busy-u.busy)-(now.ours-u.ours)).Seconds()/wall), max(0, (now.steal-u.steal).Seconds()/wall)
}

// place asks the little helper where the two CPUs lie now.
func place(ctx context.Context, p programs) string {
	e, err := execute(ctx, 5*time.Second, []string{p.limits, "place"}, nil, nil)
	var at struct {
		Place string `json:"place"`
	}
	if err != nil || json.Unmarshal(bytes.TrimSpace(e.out), &at) != nil || at.Place == "" {
		return "unknown"
	}
	return at.Place
}

func merge(before, after string) string {
	if before == after {
		return before
	}
	return "mixed"
}

// measureBounds runs the helper that measures memory and cache lines.
func measureBounds(ctx context.Context, p programs) ([]bound, error) {
	before := place(ctx, p)
	e, err := execute(ctx, time.Minute, []string{p.limits, "bounds"}, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("limits: %w\n%s", err, e.out)
	}
	var bs []bound
	for l := range bytes.Lines(e.out) {
		var b bound
		if err := json.Unmarshal(l, &b); err != nil {
			return nil, fmt.Errorf("limits: %w: %s", err, l)
		}
		bs = append(bs, b)
	}
	at := merge(before, place(ctx, p))
	for i := range bs {
		bs[i].Place = at
	}
	return bs, nil
}

// pages tells the kind of pages under the larger part of a process group's memory.
type pages struct{ huge, all int }

func (p *pages) look(pgid int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if g, err := syscall.Getpgid(pid); err != nil || g != pgid {
			continue
		}
		b, err := os.ReadFile(filepath.Join(d, "smaps_rollup"))
		if err != nil {
			continue
		}
		huge, all := rollup(string(b))
		if all > p.all {
			p.huge, p.all = huge, all
		}
	}
}

// rollup reads smaps_rollup: memory on huge pages and memory at all that belongs to no ordinary file.
func rollup(s string) (huge, all int) {
	for l := range strings.Lines(s) {
		key, rest, _ := strings.Cut(l, ":")
		n := kib(strings.TrimSpace(rest))
		switch key {
		case "AnonHugePages", "ShmemPmdMapped":
			huge += n
		case "Pss_Anon", "Pss_Shmem":
			all += n
		}
	}
	return huge, all
}

func (p *pages) String() string {
	switch {
	case p.all == 0:
		return "unknown"
	case 2*p.huge > p.all:
		return "huge"
	}
	return "4 KiB"
}
