package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// jobLimit ends a launch that hangs or that more ranks than cores slow down beyond use.
const jobLimit = 2 * time.Minute

// maxTries is how often one launch is made at most; all repetitions together stay below a quarter of all.
const maxTries = 3

// runner makes a run.
type runner struct {
	o        *options
	bin      programs
	out      *output
	failures map[string]int // of a configuration with a collective and a number of ranks
	retries  int            // left
	m        machine
	tmp      string

	done, total int
	spent       time.Duration // on what is done
}

func (r *runner) run(ctx context.Context) (err error) {
	r.m = thisMachine(r.o)
	if r.tmp, err = os.MkdirTemp("", "benchpeers"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.tmp)) }()
	if r.m.Slices, r.m.Alloc, err = r.pages(ctx); err != nil {
		return err
	}
	if err := r.out.put(r.m); err != nil {
		return err
	}
	blocks := r.plan()
	var need time.Duration
	for _, b := range blocks {
		r.total += len(b)
		for i := range b {
			need += estimate(&b[i], r.o.Budget)
		}
	}
	if r.total == 0 {
		return errors.New("there is nothing to run: no configuration of --configs is for these --ranks, --coll and --sizes")
	}
	r.retries = r.total/4 + 1
	fmt.Printf("%d launches in %d rounds, about %v; rows go to %s\n", r.total, r.o.Rounds, need.Round(time.Second), r.o.Out)
	start := time.Now()
	round := -1
	for _, b := range blocks {
		if len(b) == 0 {
			continue
		}
		if b[0].round != round {
			round = b[0].round
			if err := r.bounds(ctx); err != nil {
				return err
			}
		}
		if err := r.block(ctx, b); err != nil {
			return err
		}
	}
	fmt.Printf("measured in %v\n", time.Since(start).Round(time.Second))
	return nil
}

// plan lists the launches: blocks that belong together, in rounds. A block is one collective with one
// number of ranks, all configurations in an order that another round rotates.
func (r *runner) plan() (blocks [][]job) {
	huge := r.m.Slices == "huge" || r.m.Alloc == "huge"
	for round := range r.o.Rounds {
		for _, n := range r.o.Ranks {
			for _, coll := range r.o.Colls {
				if coll == "pingpong" && n != 2 {
					continue
				}
				var b []job
				for _, c := range configs(n, huge) {
					if len(r.o.Configs) > 0 && !slices.Contains(r.o.Configs, c.name) {
						continue
					}
					sizes := c.runs(coll, r.o.sizesFor(coll, n))
					if len(sizes) == 0 {
						continue
					}
					if c.lib == "gccl" {
						c.huge = c.name == "gccl-alloc" && r.m.Alloc == "huge" || c.name != "gccl-alloc" && r.m.Slices == "huge"
					}
					b = append(b, job{config: c, round: round, ranks: n, coll: coll, sizes: sizes, check: round == 0})
				}
				if len(b) > 0 {
					k := round * len(b) / r.o.Rounds
					b = slices.Concat(b[k:], b[:k])
				}
				blocks = append(blocks, b)
			}
		}
	}
	return blocks
}

// estimate is how long a launch takes on a quiet machine, roughly.
func estimate(j *job, budget time.Duration) time.Duration {
	d := 600 * time.Millisecond
	algos := 1
	if i := slices.Index(j.args, "--algo"); i >= 0 && j.coll == "allreduce" {
		algos = strings.Count(j.args[i+1], ",")
	}
	for _, s := range j.sizes {
		moved := time.Duration(float64(s*j.ranks) / 4) // at 4 GB/s
		d += time.Duration(algos) * (3*budget/2 + 8*moved)
	}
	return d
}

// block runs the launches of a block, the disturbed ones again at its end.
func (r *runner) block(ctx context.Context, b []job) error {
	for len(b) > 0 {
		j := b[0]
		b = b[1:]
		key := j.String()
		if r.failures[key] >= 2 {
			continue
		}
		began := time.Now()
		rows, err := r.launch(ctx, &j)
		if err != nil {
			return err
		}
		for i := range rows {
			if err := r.out.put(&rows[i]); err != nil {
				return err
			}
		}
		bad := ""
		switch last := rows[len(rows)-1]; {
		case last.Failed != "":
			r.failures[key]++
			bad = ": " + last.Failed
		case last.Foreign > r.o.MaxForeign && j.tries+1 < maxTries && r.retries > 0:
			r.retries--
			j.tries++
			r.total++
			b = append(b, j)
			bad = fmt.Sprintf(": others used %.0f %% of the CPUs, once more later", 100*last.Foreign)
		}
		r.done++
		r.spent += time.Since(began)
		left := time.Duration(float64(r.spent) / float64(r.done) * float64(r.total-r.done))
		fmt.Printf("%d/%d round %d %s%s (%v left)\n", r.done, r.total, j.round+1, key, bad, left.Round(time.Second))
	}
	return nil
}

// launch runs one job. It returns at least one row, the last of which says what failed.
func (r *runner) launch(ctx context.Context, j *job) ([]row, error) {
	args, env := j.command(r.bin, r.o)
	env = append(env, "TMPDIR="+r.tmp) // what a killed launch leaves there goes with the run
	before := place(ctx, r.bin)
	u := usageNow()
	e, err := execute(ctx, jobLimit, args, env, nil)
	foreign, steal := u.since(usageNow(), r.m.Cores)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rows, complaints := parse(j, e.out)
	if err != nil || len(rows) == 0 {
		why := "no rows"
		if err != nil {
			why = strings.ReplaceAll(err.Error(), "\n", ": ")
		}
		if text := strings.TrimSpace(string(complaints)); text != "" {
			why += ": " + text[:min(len(text), 300)]
		}
		rows = append(rows, row{Config: j.name, Lib: j.lib, Coll: j.coll, Ranks: j.ranks, Round: j.round, Try: j.tries, Failed: why})
	}
	at := merge(before, place(ctx, r.bin))
	for i := range rows {
		rows[i].Place, rows[i].Foreign, rows[i].Steal = at, foreign, steal
	}
	return rows, ctx.Err()
}

// bounds measures what the machine permits; a machine too busy for that goes without.
func (r *runner) bounds(ctx context.Context) error {
	bs, err := measureBounds(ctx, r.bin)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		fmt.Println("bounds not measured:", err)
	}
	for i := range bs {
		if err := r.out.put(&bs[i]); err != nil {
			return err
		}
	}
	return nil
}

// pages finds out what pages lie under gccl's slices and its Alloc memory: it looks while both are in use.
func (r *runner) pages(ctx context.Context) (slices, alloc string, err error) {
	var kinds [2]pages
	for i, flags := range [][]string{nil, {"-R"}} {
		args := append([]string{r.bin.gccl, "perf", "allreduce", "--ranks", "2", "--format", "jsonl", "--sizes", "64M", "--budget", "300ms", "-c", "0"}, flags...)
		e, err := execute(ctx, jobLimit, args, nil, kinds[i].look)
		if err != nil {
			return "", "", fmt.Errorf("gccl perf: %w\n%s", err, e.out)
		}
	}
	return kinds[0].String(), kinds[1].String(), nil
}
