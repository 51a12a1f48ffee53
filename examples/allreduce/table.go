package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
)

// table prints what rank 0 has to tell.
type table struct {
	out    io.Writer
	silent bool
}

func (t *table) line(format string, args ...any) {
	if !t.silent {
		fmt.Fprintf(t.out, format+"\n", args...)
	}
}

func (t *table) head(ranks int, plan collective.PlanInfo, data string) {
	providers := strings.Join(plan.Providers, ", ")
	if providers == "" {
		providers = "none"
	}
	t.line("%s, provider %s, algorithm %s, lanes %d, windows %d", count(ranks, "rank"), providers, plan.Algorithm, plan.Lanes, plan.Windows)
	t.line("%s", data)
	t.line("")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// columns prints the names of the columns: those given, and those of every table.
func (t *table) columns(names ...string) {
	t.line("%s%12s %10s %13s %13s  %s", fields(names), "bytes", "time", "algbw", "busbw", "checked")
}

func (t *table) row(bytes, ranks int, took time.Duration, checked string, values ...string) {
	algbw := float64(bytes) / float64(max(1, took.Nanoseconds())) // bytes/ns are GB/s
	busbw := algbw * 2 * float64(ranks-1) / float64(ranks)
	t.line("%s%12d %10s %8.3f GB/s %8.3f GB/s  %s", fields(values), bytes, took.Round(100*time.Nanosecond), algbw, busbw, checked)
}

func (t *table) foot(lines ...string) {
	t.line("")
	for _, l := range lines {
		t.line("%s", l)
	}
}

func fields(values []string) string {
	var b strings.Builder
	for i, v := range values {
		if i == 0 {
			fmt.Fprintf(&b, "%4s", v)
		} else {
			fmt.Fprintf(&b, " %9s", v)
		}
	}
	return b.String()
}
