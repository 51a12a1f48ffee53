package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gccl/gccl/collective"
)

const defaultBudget = 30 * time.Millisecond

// options are the flags, first as given, then completed.
type options struct {
	ranks, colls, sizes, configs string

	Ranks      []int
	Colls      []string
	Sizes      []int // nil: as fit the number of ranks
	Configs    []string
	Rounds     int
	Budget     time.Duration
	Quick      bool
	MaxForeign float64
	Out, Docs  string
	Report     string
}

// collectives in the order of the report. A ping-pong has two ranks.
var collectives = []string{"allreduce", "broadcast", "allgather", "reducescatter", "reduce", "alltoall", "barrier", "pingpong", "sendrecv"}

func (o *options) complete() error {
	ranks, rounds := "2,4,8", 3
	if o.Quick {
		ranks, rounds = "2,4", 1
		o.colls = cmp.Or(o.colls, "allreduce,broadcast,allgather,barrier")
		o.sizes = cmp.Or(o.sizes, "8,4K,64K,1M,16M")
		o.configs = cmp.Or(o.configs, "gccl,gccl-alloc,gccl-tcp,ompi,ompi-ucx,ompi-yield1,ompi-yield1-bind,ompi-ucx-yield1,ompi-ucx-yield1-bind,mpich,gloo,ompi-tcp,ompi-tcp-yield1")
	}
	o.ranks, o.Rounds = cmp.Or(o.ranks, ranks), cmp.Or(o.Rounds, rounds)
	for _, s := range list(o.ranks) {
		n, err := strconv.Atoi(s)
		if err != nil || n < 2 || n > 64 {
			return fmt.Errorf("--ranks %q: from 2 to 64", s)
		}
		o.Ranks = append(o.Ranks, n)
	}
	for _, s := range list(o.sizes) {
		n, err := collective.ParseBytes(s)
		if err != nil || n < 4 || n > 1<<30 {
			return fmt.Errorf("--sizes %q: from 4 to 1G", s)
		}
		o.Sizes = append(o.Sizes, n)
	}
	o.Colls = list(o.colls)
	for _, c := range o.Colls {
		if !slices.Contains(collectives, c) {
			return fmt.Errorf("--coll %q: there are %s", c, strings.Join(collectives, ", "))
		}
	}
	if len(o.Colls) == 0 {
		o.Colls = collectives
	}
	o.Configs = list(o.configs)
	there := configNames()
	for _, c := range o.Configs {
		if !slices.Contains(there, c) {
			return fmt.Errorf("--configs %q: there are %s", c, strings.Join(there, ", "))
		}
	}
	if o.Rounds < 1 || o.Budget <= 0 {
		return fmt.Errorf("--rounds %d --budget %v: both must be positive", o.Rounds, o.Budget)
	}
	return nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

// sizesFor are the sizes of a collective: the more ranks, the fewer and the smaller.
func (o *options) sizesFor(coll string, ranks int) []int {
	switch {
	case coll == "barrier":
		return []int{0}
	case len(o.Sizes) > 0:
		return o.Sizes
	case ranks <= 2:
		return []int{8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}
	case ranks <= 4:
		return []int{8, 256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
	}
	return []int{8, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
}
