package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func (p *perf) header() {
	if p.comm.Rank() != 0 || p.o.JSON {
		return
	}
	fmt.Printf("# %s: ranks %d minBytes %d maxBytes %d step: %g(factor) warmup iters: %d iters: %d validation: %v registered: %v\n#\n",
		p.o.Collective, p.comm.Size(), p.o.Min, p.o.Max, p.o.Factor, p.o.Warmup, p.o.Iters, p.o.Check, p.o.Alloc)
	fmt.Println("#                                                              out-of-place                       in-place")
	fmt.Println("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
	fmt.Println("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)")
}

func (p *perf) print(r *row) {
	if p.comm.Rank() != 0 {
		return
	}
	if p.o.JSON {
		b, err := json.Marshal(r)
		if err != nil {
			panic(err) // a row is numbers and strings
		}
		fmt.Println(string(b))
		return
	}
	fmt.Printf("%12d %13d %9s %7s %7d %s", r.Size, r.Count, r.Type, r.RedOp, r.Root, r.Out.columns(p.o.Check))
	if r.In != nil {
		fmt.Printf(" %s", r.In.columns(p.o.Check))
	} else {
		fmt.Printf(" %8s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A")
	}
	fmt.Println()
}

func (t *timing) columns(checked bool) string {
	wrong := "N/A"
	if checked {
		wrong = fmt.Sprint(t.Wrong)
	}
	return fmt.Sprintf("%8s %7.2f %7.2f %6s", micros(t.Time), t.AlgBW, t.BusBW, wrong)
}

// micros keeps three or more significant digits in eight columns.
func micros(us float64) string {
	switch {
	case us < 10:
		return fmt.Sprintf("%.3f", us)
	case us < 10000:
		return fmt.Sprintf("%.1f", us)
	}
	return fmt.Sprintf("%.0f", us)
}

func (p *perf) footer(avg float64, wrong int) {
	if p.comm.Rank() != 0 || p.o.JSON {
		return
	}
	ok := "OK"
	if wrong > 0 {
		ok = "FAILED"
	}
	fmt.Printf("# Out of bounds values : %d %s\n# Avg bus bandwidth    : %g\n#\n", wrong, ok, avg)
	_ = os.Stdout.Sync()
}
