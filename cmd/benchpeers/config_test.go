package main

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfigurationsHaveNamesOfTheirOwn(t *testing.T) {
	for _, ranks := range []int{2, 4, 1000} {
		for _, coll := range collectives {
			seen := map[string]bool{}
			for _, c := range configs(ranks, true) {
				if len(c.runs(coll, []int{0, 64 << 20})) == 0 {
					continue
				}
				assert.False(t, seen[c.name], "%d ranks, %s: %s", ranks, coll, c.name)
				seen[c.name] = true
			}
			for _, v := range variants {
				assert.True(t, seen[v.config], v.config)
			}
		}
	}
}

func TestCommandLines(t *testing.T) {
	o := &options{Budget: 20 * time.Millisecond}
	p := programs{gccl: "G", openmpi: "O", mpich: "M", gloo: "L"}
	line := func(name string, coll string) []string {
		cs := configs(2, false)
		i := slices.IndexFunc(cs, func(c config) bool { return c.name == name })
		require.GreaterOrEqual(t, i, 0, name)
		args, _ := (&job{config: cs[i], ranks: 2, coll: coll, sizes: []int{8, 1024}, check: true}).command(p, o)
		return args
	}
	assert.Equal(t, []string{"G", "perf", "allreduce", "--ranks", "2", "--format", "jsonl", "--budget", "20ms", "-R", "--sizes", "8,1024"}, line("gccl-alloc", "allreduce"))
	assert.Equal(t, []string{"G", "perf", "barrier", "--ranks", "2", "--format", "jsonl", "--budget", "20ms"}, line("gccl", "barrier"))
	assert.Equal(t, []string{"mpirun.mpich", "-n", "2", "M", "--coll", "reduce", "--sizes", "8,1024", "--budget", "0.02", "--miniters", "3", "--iters", "1000000"}, line("mpich", "reduce"))
	assert.Contains(t, line("gloo", "allreduce"), "ring,bcube,hd,oldringchunked,new,a2a")
}

func TestOptions(t *testing.T) {
	o := options{ranks: "2,8", sizes: "8,4K", Rounds: 1, Budget: time.Millisecond}
	require.NoError(t, o.complete())
	assert.Equal(t, []int{2, 8}, o.Ranks)
	assert.Equal(t, []int{8, 4096}, o.sizesFor("allreduce", 8))
	assert.Equal(t, []int{0}, o.sizesFor("barrier", 8))
	assert.Equal(t, collectives, o.Colls)
	quick := options{Quick: true, colls: "reduce", Budget: time.Millisecond}
	require.NoError(t, quick.complete())
	assert.Equal(t, 1, quick.Rounds)
	assert.Equal(t, []int{2, 4}, quick.Ranks)
	assert.Equal(t, []string{"reduce"}, quick.Colls, "what is asked for goes before the subset")
	require.NoError(t, (&options{ranks: "2", configs: "gccl,ompi-yield1,ompi-huge", Rounds: 1, Budget: 1}).complete())
	for _, bad := range []options{
		{ranks: "1", Rounds: 1, Budget: 1}, {ranks: "x", Rounds: 1, Budget: 1}, {ranks: "2", sizes: "3", Rounds: 1, Budget: 1},
		{ranks: "2", sizes: "8Q", Rounds: 1, Budget: 1}, {ranks: "2", colls: "gather", Rounds: 1, Budget: 1}, {ranks: "2", Rounds: -1, Budget: 1}, {ranks: "2"},
		{ranks: "2", configs: "gccl,ompy", Rounds: 1, Budget: 1},
	} {
		assert.Error(t, bad.complete(), "%+v", bad)
	}
}

// Every round runs every launch once, and no configuration always comes first.
func TestPlanRotates(t *testing.T) {
	o := options{ranks: "2", colls: "allreduce", Rounds: 3, Budget: time.Millisecond}
	require.NoError(t, o.complete())
	r := &runner{o: &o}
	blocks := r.plan()
	require.Len(t, blocks, 3)
	first, names := map[string]bool{}, []string(nil)
	for i, b := range blocks {
		first[b[0].name] = true
		var ns []string
		for _, j := range b {
			assert.Equal(t, i, j.round)
			assert.Equal(t, i == 0, j.check)
			ns = append(ns, j.name)
		}
		slices.Sort(ns)
		if i > 0 {
			assert.Equal(t, names, ns)
		}
		names = ns
	}
	assert.Len(t, first, 3)
}
