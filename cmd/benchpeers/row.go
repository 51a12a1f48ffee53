package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// row is one line of the raw file: one size of one process launch, or what one launch failed with.
type row struct {
	Config  string  `json:"config"`
	Lib     string  `json:"lib"`
	Version string  `json:"version,omitempty"`
	TCP     bool    `json:"tcp,omitempty"`
	Huge    bool    `json:"huge,omitempty"` // the buffers lay on huge pages
	Coll    string  `json:"coll"`
	InPlace bool    `json:"inplace,omitempty"`
	Ranks   int     `json:"ranks"`
	Bytes   int     `json:"bytes"`
	Time    float64 `json:"time_us"` // mean of back-to-back calls on the slowest rank
	Iters   int     `json:"iters"`
	Wrong   int     `json:"wrong"` // elements, over all ranks

	Round   int     `json:"round"`
	Try     int     `json:"try"`
	Place   string  `json:"place"`
	Foreign float64 `json:"foreign"` // share of the CPUs used by others meanwhile
	Steal   float64 `json:"steal"`   // share of the CPUs taken by the hypervisor
	Failed  string  `json:"failed,omitempty"`
}

// bound is what the machine permits: memory bandwidth or the time of a cache line.
type bound struct {
	Name  string  `json:"bound"`
	Cores int     `json:"cores"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Place string  `json:"place"`
}

// parseGCCL reads a line of gccl perf --format jsonl: two rows where the collective exists in place.
func parseGCCL(line []byte) ([]row, error) {
	type timing struct {
		Time  float64 `json:"time"`
		Wrong int     `json:"nwrong"`
	}
	var in struct {
		Collective string  `json:"collective"`
		Ranks      int     `json:"ranks"`
		Size       int     `json:"size"`
		Iters      int     `json:"iters"`
		Out        *timing `json:"out_of_place"`
		In         *timing `json:"in_place"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, err
	}
	if in.Collective == "" || in.Out == nil || in.Out.Time <= 0 {
		return nil, fmt.Errorf("not a row of gccl perf: %s", line)
	}
	r := row{Lib: "gccl", Coll: in.Collective, Ranks: in.Ranks, Bytes: in.Size, Iters: in.Iters, Time: in.Out.Time, Wrong: in.Out.Wrong}
	if in.Collective == "broadcast" && in.In != nil {
		// The peers broadcast from and into one buffer, so that is what ours is compared by.
		r.Time, r.Wrong = in.In.Time, in.In.Wrong
		in.In = nil
	}
	rows := []row{r}
	if in.In != nil && in.In.Time > 0 {
		r.InPlace, r.Time, r.Wrong = true, in.In.Time, in.In.Wrong
		rows = append(rows, r)
	}
	return rows, nil
}

// onlyInPlace are Gloo's classes that reduce in the caller's buffer. They are compared out of place as
// well, which favours them: they need not keep the input.
func onlyInPlace(coll, algo string) bool {
	return (coll == "allreduce" && (algo == "hd" || algo == "oldringchunked" || algo == "oldbcube" || algo == "oldring")) || coll == "reducescatter"
}

// parsePeer reads the output of mpi_coll and gloo_coll. The algorithm is appended to config.
func parsePeer(config string, line []byte) ([]row, error) {
	var in struct {
		Lib     string  `json:"lib"`
		Version string  `json:"version"`
		Algo    string  `json:"algo"`
		Coll    string  `json:"coll"`
		Ranks   int     `json:"ranks"`
		Bytes   int     `json:"bytes"`
		InPlace int     `json:"inplace"`
		Iters   int     `json:"iters"`
		Time    float64 `json:"time_us"`
		Wrong   int     `json:"wrong"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, err
	}
	if in.Lib == "" || in.Coll == "" || in.Time <= 0 {
		return nil, fmt.Errorf("not a row of a peer: %s", line)
	}
	if in.Algo != "" && in.Algo != "new" {
		config += ":" + in.Algo
	}
	r := row{
		Config: config, Lib: in.Lib, Version: in.Version, Coll: in.Coll, Ranks: in.Ranks, Bytes: in.Bytes,
		Iters: in.Iters, Time: in.Time, Wrong: in.Wrong, InPlace: in.InPlace != 0 && in.Coll != "broadcast",
	}
	if in.Lib == "Gloo" && onlyInPlace(in.Coll, in.Algo) {
		r.InPlace = false
		both := r
		both.InPlace = true
		return []row{r, both}, nil
	}
	return []row{r}, nil
}

// parse reads what a job printed; other lines than JSON objects are returned as complaints.
func parse(j *job, out []byte) (rows []row, complaints []byte) {
	for line := range bytes.Lines(out) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var rs []row
		var err error
		if j.gccl() {
			rs, err = parseGCCL(line)
		} else {
			rs, err = parsePeer(j.name, line)
		}
		if err != nil {
			complaints = append(append(complaints, line...), '\n')
			continue
		}
		for _, r := range rs {
			if r.Coll != j.coll || r.Bytes == 0 && j.coll != "barrier" {
				continue // a size too small to give every rank an element
			}
			if j.gccl() {
				r.Config = j.name
			}
			r.TCP, r.Huge, r.Round, r.Try = j.tcp, j.huge, j.round, j.tries
			rows = append(rows, r)
		}
	}
	return rows, complaints
}

// output is the raw file, written line by line so that an interrupted run keeps what it has.
type output struct{ f *os.File }

func create(path string) (*output, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &output{f}, nil
}

func (o *output) put(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = o.f.Write(append(b, '\n'))
	return err
}

func (o *output) close() error { return o.f.Close() }

// measurements are a raw file's content.
type measurements struct {
	machine machine
	bounds  []bound
	rows    []row
}

func read(r io.Reader) (*measurements, error) {
	var m measurements
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for n := 1; sc.Scan(); n++ {
		var kind struct {
			Bound  *string `json:"bound"`
			Config *string `json:"config"`
			CPU    *string `json:"cpu"`
		}
		err := json.Unmarshal(sc.Bytes(), &kind)
		if err == nil {
			switch {
			case kind.Bound != nil:
				var b bound
				err = json.Unmarshal(sc.Bytes(), &b)
				m.bounds = append(m.bounds, b)
			case kind.Config != nil:
				var r row
				err = json.Unmarshal(sc.Bytes(), &r)
				m.rows = append(m.rows, r)
			case kind.CPU != nil:
				err = json.Unmarshal(sc.Bytes(), &m.machine)
			default:
				err = errors.New("neither a row nor a bound nor the machine")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return &m, sc.Err()
}
