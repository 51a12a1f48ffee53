package main

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// machine is where and when the measurements were made, in words that name no host.
type machine struct {
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`
	L3      int      `json:"l3_bytes"` // 0: not known
	Memory  int      `json:"memory_bytes"`
	System  string   `json:"system"`
	Kernel  string   `json:"kernel"`
	Go      string   `json:"go"`
	THP     string   `json:"thp"` // the kernel's settings for anonymous and for shared memory
	Peers   []string `json:"peers"`
	Date    string   `json:"date"`
	Rounds  int      `json:"rounds"`
	Budget  string   `json:"budget"`
	Slices  string   `json:"slices"` // pages under gccl's buffers: "4 KiB" or "huge"
	Alloc   string   `json:"alloc"`
	Foreign float64  `json:"max_foreign"`
}

func thisMachine(o *options) machine {
	m := machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Kernel: line("/proc/sys/kernel/osrelease"),
		System: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH,
		THP:  chosen("/sys/kernel/mm/transparent_hugepage/enabled") + ", shared " + chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
		Date: time.Now().UTC().Format(time.DateOnly), Rounds: o.Rounds, Budget: o.Budget.String(), Foreign: o.MaxForeign,
		L3: kib(line("/sys/devices/system/cpu/cpu0/cache/index3/size")), Memory: kib(field("/proc/meminfo", "MemTotal")),
	}
	for _, p := range []string{"openmpi-bin", "mpich", "libgloo-dev", "libucx0"} {
		if out, err := exec.Command("dpkg-query", "-W", "-f", "${Package} ${Version}", p).Output(); err == nil {
			m.Peers = append(m.Peers, string(out))
		}
	}
	return m
}

// field returns what follows a key and a separator in a file of such lines.
func field(path, key string) string {
	b, _ := os.ReadFile(path)
	for l := range bytes.Lines(b) {
		if rest, ok := strings.CutPrefix(string(l), key); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return ""
}

func line(path string) string {
	b, _ := os.ReadFile(path)
	return strings.TrimSpace(string(b))
}

// chosen is the word in brackets.
func chosen(path string) string {
	_, s, _ := strings.Cut(line(path), "[")
	s, _, _ = strings.Cut(s, "]")
	if s == "" {
		return "unknown"
	}
	return s
}

// kib reads "16384K" and "16384 kB".
func kib(s string) int {
	n, err := strconv.Atoi(strings.TrimRight(s, " kKB"))
	if err != nil {
		return 0
	}
	return n << 10
}
