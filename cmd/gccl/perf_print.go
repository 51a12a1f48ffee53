package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// printer shows results: on rank 0, nothing elsewhere.
type printer struct {
	p    *perf
	out  io.Writer // the table
	doc  *document // nil: no JSON
	file io.WriteCloser
}

// device is a rank, in nccl-tests' words.
type device struct {
	Rank     int    `json:"rank"`
	Pid      int    `json:"pid"`
	Hostname string `json:"hostname"`
}

// document is nccl-tests' JSON.
type document struct {
	Version string            `json:"version"`
	Start   string            `json:"start_time"`
	End     string            `json:"end_time"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Config  map[string]any    `json:"config"`
	Devices []device          `json:"devices"`
	Results []*row            `json:"results"`
	Bounds  struct {
		Count int  `json:"count"`
		Okay  bool `json:"okay"`
	} `json:"out_of_bounds"`
	Average struct {
		Bandwidth float64 `json:"bandwidth"`
		Okay      bool    `json:"okay"`
	} `json:"average_bus_bandwidth"`
}

// newPrinter asks the ranks who they are and prints the header.
func newPrinter(ctx context.Context, p *perf) (printer, error) {
	devices, err := p.devices(ctx)
	if err != nil || p.comm.Rank() != 0 {
		return printer{}, err
	}
	pr := printer{p: p, out: os.Stdout}
	if p.o.JSON != "" {
		pr.doc = &document{Version: version(), Start: now(), Args: p.o.Args, Env: settingsInForce(), Devices: devices, Config: p.config()}
		pr.out, pr.file = io.Discard, os.Stdout
		if p.o.JSON != "-" {
			pr.out = os.Stdout
			if pr.file, err = os.Create(p.o.JSON); err != nil {
				return printer{}, err
			}
		}
	}
	pr.header(devices)
	return pr, nil
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// settingsInForce are the variables that the communicator's settings came from.
func settingsInForce() map[string]string {
	env := map[string]string{}
	values, _ := collective.Values(os.LookupEnv) // the communicator has read them without error
	for _, v := range values {
		if v.Source != "default" {
			env[v.Source] = v.Value
		}
	}
	return env
}

func (p *perf) config() map[string]any {
	o := p.o
	return map[string]any{"collective": o.Collective, "nranks": p.comm.Size(), "minimum_bytes": o.Min, "maximum_bytes": o.Max,
		"step_bytes": o.Step, "step_factor": o.Factor, "warmup_iters": o.Warmup, "iterations": o.Iters, "run_cycles": o.Cycles,
		"check_iterations": o.Check, "registered": o.Alloc, "per_iteration": o.Each, "window": o.Window}
}

// devices gathers who the ranks are.
func (p *perf) devices(ctx context.Context) ([]device, error) {
	const width = 128
	mine := make([]uint8, width)
	d := device{Rank: p.comm.Rank(), Pid: os.Getpid()}
	d.Hostname, _ = os.Hostname()
	d.Hostname = d.Hostname[:min(len(d.Hostname), 64)]
	b, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	copy(mine, b)
	all := make([]uint8, width*p.comm.Size())
	if err := p.comm.AllGather(ctx, tensor.Of(all), tensor.Of(mine)); err != nil {
		return nil, err
	}
	ds := make([]device, p.comm.Size())
	for r := range ds {
		if err := json.Unmarshal(bytes.TrimRight(all[r*width:(r+1)*width], "\x00"), &ds[r]); err != nil {
			return nil, fmt.Errorf("rank %d says who it is in a strange way: %w", r, err)
		}
	}
	return ds, nil
}

// providers is what carries rank 0's messages.
func (p *perf) providers() string {
	one := tensor.Of(make([]uint8, 1))
	info, err := p.comm.Plan(collective.Call{Kind: collective.AllReduce, Op: tensor.Max, Src: one, Dst: one})
	if err != nil || len(info.Providers) == 0 {
		return "none"
	}
	return strings.Join(info.Providers, ",")
}

func (pr *printer) header(devices []device) {
	switch pr.p.o.Format {
	case "osu":
		pr.headerOSU(len(devices))
	case "nccl":
		pr.headerNCCL(devices)
	}
}

func (pr *printer) headerOSU(ranks int) {
	o, w := pr.p.o, pr.out
	fmt.Fprintf(w, "# gccl %s latency test, %d ranks, in the format of the OSU micro-benchmarks\n# Datatype: %s.\n", o.Collective, ranks, o.DType)
	if o.Each {
		fmt.Fprintf(w, "# %-10s%18s%18s%18s%12s\n", "Size", "Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations")
	} else {
		fmt.Fprintf(w, "# %-10s%18s\n", "Size", "Avg Latency(us)")
	}
}

func (pr *printer) headerNCCL(devices []device) {
	o, w := pr.p.o, pr.out
	step, buffers, validation := fmt.Sprintf("%g(factor)", o.Factor), "ordinary", 0
	if o.Step > 0 {
		step = fmt.Sprintf("%d(bytes)", o.Step)
	}
	if o.Alloc {
		buffers = "registered"
	}
	if o.Check {
		validation = 1
	}
	fmt.Fprintf(w, "# %s: %s\n", version(), o.Collective)
	fmt.Fprintf(w, "# nThread 1 nGpus 1 minBytes %d maxBytes %d step: %s warmup iters: %d iters: %d agg iters: 1 validation: %d graph: 0\n#\n",
		o.Min, o.Max, step, o.Warmup, o.Iters, validation)
	fmt.Fprintf(w, "# Using devices, provider %s, %s buffers\n", pr.p.providers(), buffers)
	for _, d := range devices {
		fmt.Fprintf(w, "#  Rank %2d Group  0 Pid %6d on %s\n", d.Rank, d.Pid, d.Hostname)
	}
	fmt.Fprintln(w, "#")
	fmt.Fprintln(w, "#                                                              out-of-place                       in-place")
	fmt.Fprint(w, "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong")
	if o.Each {
		fmt.Fprint(w, "     out-of-place: min     max     avg     p50     p95     p99   in-place: min     max     avg     p50     p95     p99")
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)")
}

func (pr *printer) row(r *row) {
	if pr.p == nil {
		return
	}
	if pr.doc != nil {
		pr.doc.Results = append(pr.doc.Results, r)
	}
	switch pr.p.o.Format {
	case "jsonl":
		pr.rowJSON(r)
	case "osu":
		pr.rowOSU(r)
	case "nccl":
		pr.rowNCCL(r)
	}
}

func (pr *printer) rowJSON(r *row) {
	b, err := json.Marshal(struct {
		Collective string `json:"collective"`
		Ranks      int    `json:"ranks"`
		Registered bool   `json:"registered"`
		*row
	}{pr.p.o.Collective, pr.p.comm.Size(), pr.p.o.Alloc, r})
	if err != nil {
		panic(err) // a row is numbers and strings
	}
	fmt.Fprintln(pr.out, string(b))
}

func (pr *printer) rowOSU(r *row) {
	fmt.Fprintf(pr.out, "%-12d%18.2f", r.Size, r.Out.Time)
	if s := r.Out.spread; s != nil {
		fmt.Fprintf(pr.out, "%18.2f%18.2f%12d", s.Min, s.Max, r.Iters)
	}
	fmt.Fprintln(pr.out)
}

func (pr *printer) rowNCCL(r *row) {
	w := pr.out
	fmt.Fprintf(w, "%12d %13d %9s %7s %7d %s", r.Size, r.Count, r.Type, r.RedOp, r.Root, r.Out.columns())
	if r.In != nil {
		fmt.Fprintf(w, " %s", r.In.columns())
	} else {
		fmt.Fprintf(w, " %8s %7s %7s %6s", "N/A", "N/A", "N/A", "N/A")
	}
	if r.Out.spread != nil {
		fmt.Fprintf(w, "     %17s", r.Out.spread.columns())
		if r.In != nil {
			fmt.Fprintf(w, "   %13s", r.In.spread.columns())
		}
	}
	fmt.Fprintln(w)
}

func (t *timing) columns() string {
	wrong := "N/A"
	if t.Wrong >= 0 {
		wrong = fmt.Sprint(t.Wrong)
	}
	return fmt.Sprintf("%8s %7.2f %7.2f %6s", micros(t.Time), t.AlgBW, t.BusBW, wrong)
}

func (s *spread) columns() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%17s", micros(s.Min))
	for _, v := range []float64{s.Max, s.Avg, s.P50, s.P95, s.P99} {
		fmt.Fprintf(&b, " %7s", micros(v))
	}
	return b.String()
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

// end prints the footers and writes the JSON.
func (pr *printer) end(t *totals) error {
	if pr.p == nil {
		return nil
	}
	ok := "OK"
	if t.wrong > 0 {
		ok = "FAILED"
	}
	if pr.p.o.Format == "nccl" {
		fmt.Fprintf(pr.out, "# Out of bounds values : %d %s\n# Avg bus bandwidth    : %g\n#\n", t.wrong, ok, t.mean())
	}
	if pr.doc == nil {
		return nil
	}
	d := pr.doc
	d.End, d.Bounds.Count, d.Bounds.Okay = now(), t.wrong, t.wrong == 0
	d.Average.Bandwidth, d.Average.Okay = t.mean(), true
	enc := json.NewEncoder(pr.file)
	enc.SetIndent("", "  ")
	err := enc.Encode(d)
	if pr.p.o.JSON != "-" {
		err = errors.Join(err, pr.file.Close())
	}
	return err
}
