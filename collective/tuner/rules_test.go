package tuner

import (
	"slices"
	"testing"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tree"
	"github.com/stretchr/testify/require"
)

func catalog() []schedule.Info {
	return slices.Concat(ring.Algorithms(), tree.Algorithms(), direct.Algorithms())
}

// allowed lists what a setting allows of a collective at a size.
func allowed(t *testing.T, text string, coll schedule.Collective, bytes int) (names []string) {
	cat := catalog()
	r, err := ParseRules(text, cat)
	require.NoError(t, err, text)
	for i := range cat {
		if cat[i].Collective == coll && r.Allows(i, coll, bytes) {
			names = append(names, cat[i].Name)
		}
	}
	return names
}

func TestRules(t *testing.T) {
	const ar, bc, a2a = schedule.AllReduce, schedule.Broadcast, schedule.AllToAll
	all := func(c schedule.Collective) []string { return allowed(t, "", c, 0) }
	treesOut := slices.DeleteFunc(all(bc), func(n string) bool { return n[:4] == "tree" })
	for _, tc := range []struct {
		text  string
		coll  schedule.Collective
		bytes int
		want  []string
	}{
		{"", ar, 0, all(ar)},
		{"  ", ar, 0, all(ar)},
		{"ring", ar, 0, []string{"ring.AllReduce"}},
		{"ring", a2a, 0, all(a2a)}, // there is none
		{"Ring,Tree", ar, 0, []string{"ring.AllReduce", "tree.AllReduce", "tree.AllReduceDouble"}},
		{"Ring,Tree", schedule.AllGather, 0, []string{"ring.AllGather"}},
		{"^tree", bc, 0, treesOut},
		{"^Tree,ring", schedule.ReduceScatter, 0, slices.DeleteFunc(all(schedule.ReduceScatter), func(n string) bool { return n[:4] == "ring" })},
		{"allreduce:ring;broadcast:^tree", ar, 1 << 30, []string{"ring.AllReduce"}},
		{"allreduce:ring;broadcast:^tree", bc, 1 << 30, treesOut},
		{"allreduce:ring;broadcast:^tree", a2a, 0, all(a2a)},
		{"ALLREDUCE : direct.allreducetwoshot", ar, 0, []string{"direct.AllReduceTwoShot"}},
		{"allreduce:AllReduceOneShot", ar, 0, []string{"direct.AllReduceOneShot"}},
		{"allreduce:oneshot|TwoShot", ar, 0, []string{"direct.AllReduceOneShot", "direct.AllReduceTwoShot"}},
		{"PAT", schedule.AllGather, 0, []string{"direct.AllGatherPAT"}},
		{"tree;allreduce:ring", ar, 0, []string{"ring.AllReduce"}},
		{"tree;allreduce:ring", schedule.Gather, 0, []string{"tree.Gather"}},
		{"allreduce:0-16K=direct.AllReduceOneShot,16K-=ring.AllReduce", ar, 16<<10 - 1, []string{"direct.AllReduceOneShot"}},
		{"allreduce:0-16K=direct.AllReduceOneShot,16K-=ring.AllReduce", ar, 16 << 10, []string{"ring.AllReduce"}},
		{"allreduce: -1k = ring , 2m-1g = ring|OneShot", ar, 1023, []string{"ring.AllReduce"}},
		{"allreduce: -1k = ring , 2m-1g = ring|OneShot", ar, 1024, all(ar)},
		{"allreduce: -1k = ring , 2m-1g = ring|OneShot", ar, 1<<30 - 1, []string{"ring.AllReduce", "direct.AllReduceOneShot"}},
		{"4K-=tree", schedule.Gather, 4096, []string{"tree.Gather"}},
		{"4K-=tree", schedule.Gather, 4095, all(schedule.Gather)},
		{"-8K=^ring|tree", bc, 1, slices.DeleteFunc(all(bc), func(n string) bool { return n[:4] == "tree" || n[:4] == "ring" })},
	} {
		require.Equal(t, tc.want, allowed(t, tc.text, tc.coll, tc.bytes), "%q for %v of %d", tc.text, tc.coll, tc.bytes)
	}
}

func TestRulesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"rng":                               `no algorithm is called "rng"; there are ring, tree, direct, ring.AllReduce`,
		"ring,tre":                          `no algorithm is called "tre"`,
		"allreduce:NVLS":                    `no algorithm for allreduce is called "NVLS"; there are ring, tree, direct, ring.AllReduce`,
		"alltoall:ring":                     `no algorithm for alltoall is called "ring"; there are direct, direct.AllToAllPairwise`,
		"allreduce:direct.AllGatherBruck":   "no algorithm for allreduce",
		"reduceall:ring":                    `no collective is called "reduceall"; there are allreduce, reducescatter`,
		"allreduce:ring;AllReduce:tree":     "a second rule for allreduce",
		"ring;tree":                         "one rule without any",
		":ring":                             "need one collective",
		"allreduce:":                        "a name is missing",
		"allreduce:ring,":                   "a name is missing",
		"ring;":                             "one rule without any",
		"allreduce:ring,^tree":              "^ stands before the first name",
		"allreduce:^ring|tree|direct":       "nothing is left for allreduce",
		"allreduce:0-1K=ring,512-=tree":     "overlaps another",
		"allreduce:0-1K=ring,tree":          `"tree" has no range`,
		"allreduce:1K=ring":                 "want from-to",
		"allreduce:1K-1K=ring":              "is empty",
		"allreduce:2K-1K=ring":              "is empty",
		"allreduce:1Q-=ring":                `"1Q" is no number of bytes`,
		"allreduce:-9999999999G=ring":       "is no number of bytes",
		"allreduce:0-1K=,1K-=ring":          "a name is missing",
		"allreduce:--1K=ring":               "is no number of bytes",
		"broadcast:tree;allreduce:0-K=ring": `"K" is no number of bytes`,
	} {
		_, err := ParseRules(text, catalog())
		require.ErrorContains(t, err, want, text)
	}
}

// FuzzParseRules: no text makes it fall over, what it takes leaves every collective something, and a
// setting is read the same from what String gives.
func FuzzParseRules(f *testing.F) {
	for _, s := range []string{"", "Ring,Tree", "allreduce:0-16K=OneShot,16K-=^ring;broadcast:^tree", "^PAT", "a:b-c=d|e"} {
		f.Add(s, 4096)
	}
	cat := catalog()
	f.Fuzz(func(t *testing.T, text string, bytes int) {
		r, err := ParseRules(text, cat)
		if err != nil {
			return
		}
		again, err := ParseRules(r.String(), cat)
		if err != nil {
			t.Fatalf("%q was read, %q is not: %v", text, r, err)
		}
		for _, c := range schedule.Collectives() {
			any := false
			for i := range cat {
				ok := r.Allows(i, c, bytes)
				if ok != again.Allows(i, c, bytes) {
					t.Fatalf("%q and %q differ about %s", text, r, cat[i].Name)
				}
				any = any || ok && cat[i].Collective == c
			}
			if !any {
				t.Fatalf("%q leaves nothing for %v of %d bytes", text, c, bytes)
			}
		}
	})
}
