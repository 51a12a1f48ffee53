package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// config is one way to run a library.
type config struct {
	name  string
	lib   string   // gccl, OpenMPI, MPICH or Gloo
	env   []string // beside the process's own
	args  []string // of the launcher; of gloo_coll itself
	tcp   bool     // moves its bytes by TCP: also compared with gccl's tcp provider
	inout bool     // the peers' calls in place; gccl measures both ways anyway
	huge  bool     // buffers on huge pages

	colls    []string // nil: all
	minBytes int      // of the sizes where it can differ from its plain sibling
	maxBytes int      // 0: no limit
}

func (c *config) gccl() bool { return c.lib == "gccl" }

// runs lists the sizes of a collective that the configuration is run with.
func (c *config) runs(coll string, sizes []int) []int {
	if c.colls != nil && !slices.Contains(c.colls, coll) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n < c.minBytes || c.maxBytes > 0 && n > c.maxBytes })
}

// mostIters is the most calls of one size, of us and of the peers: so many that the time given ends it.
const mostIters = 1_000_000

var (
	ompiTCP = []string{"--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"}
	ompiUCX = []string{"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"}
	ucxShm  = []string{"UCX_TLS=self,sm"}
	// keep tells glibc to keep freed temporary buffers instead of unmapping them after every call.
	keep     = []string{"MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=8589934592"}
	mpichUCX = []string{"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=self,posix,sysv,cma"}
	mpichTCP = []string{"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=self,tcp", "UCX_NET_DEVICES=lo"}
)

func ompi(name string, env []string, args ...string) config {
	return config{name: "ompi" + name, lib: "OpenMPI", env: env, args: args}
}

func mpich(name string, env []string, args ...string) config {
	return config{name: "mpich" + name, lib: "MPICH", env: env, args: args}
}

func gloo(name string, args ...string) config {
	return config{name: "gloo" + name, lib: "Gloo", args: args, tcp: true}
}

// inPlace, overTCP, long and only are a configuration with calls in place, over TCP, for long messages, and
// for one collective.
func inPlace(c config) config {
	c.name, c.inout, c.colls = c.name+"-inplace", true, []string{"allreduce", "allgather", "reducescatter"}
	return c
}

func overTCP(c config) config { c.tcp = true; return c }

func long(c config) config { c.minBytes = 4 << 20; return c }

func only(c config, coll string) config { c.colls, c.minBytes = []string{coll}, 64<<10; return c }

// configs are all configurations for a number of ranks. hugePages adds peers on huge pages, for when gccl's
// buffers lie on such.
func configs(ranks int, hugePages bool) []config {
	both := gloo("-sync", "--mode", "sync", "--algo", "hd,oldbcube,a2a")
	both.colls, both.maxBytes = []string{"allreduce", "reducescatter", "barrier"}, 16<<20
	cs := []config{
		{name: "gccl", lib: "gccl"},
		{name: "gccl-alloc", lib: "gccl", args: []string{"-R"}},
		{name: "gccl-tcp", lib: "gccl", env: []string{"GCCL_PROVIDER=tcp"}, tcp: true},
		gloo("", "--algo", "ring,bcube,hd,oldringchunked,new,a2a"), both,
	}
	if ranks > runtime.NumCPU() {
		cs = append(cs, crowdedConfigs()...)
	} else {
		cs = append(cs, roomyConfigs()...)
	}
	cs = append(cs, tunedConfigs()...)
	if hugePages {
		for _, c := range slices.Clone(cs) {
			if !c.gccl() {
				c.huge, c.name = true, c.name+"-huge"
				cs = append(cs, c)
			}
		}
	}
	return cs
}

// configNames are the names of all configurations, whatever the number of ranks.
func configNames() (names []string) {
	for _, n := range []int{1, math.MaxInt} { // fewer ranks than cores, and more
		for _, c := range configs(n, true) {
			if !slices.Contains(names, c.name) {
				names = append(names, c.name)
			}
		}
	}
	return names
}

// roomyConfigs are those of ranks that have a core each.
func roomyConfigs() []config {
	poll := gloo("-poll", "--mode", "poll", "--algo", "hd,oldbcube,a2a")
	poll.colls, poll.maxBytes = []string{"allreduce", "barrier"}, 256<<10
	return []config{
		poll,
		ompi("", nil), ompi("-nocma", nil, "--mca", "btl_vader_single_copy_mechanism", "none"),
		ompi("-ucx", ucxShm, ompiUCX...), ompi("-collsm", nil, "--mca", "coll_sm_priority", "100"),
		long(ompi("-malloc", keep)), long(ompi("-ucx-malloc", slices.Concat(keep, ucxShm), ompiUCX...)),
		overTCP(ompi("-tcp", nil, ompiTCP...)),
		mpich("", nil), mpich("-bind", nil, "-bind-to", "core"), mpich("-ucx", mpichUCX), long(mpich("-malloc", keep)), overTCP(mpich("-tcp", mpichTCP)),
		inPlace(ompi("", nil)), inPlace(ompi("-ucx", ucxShm, ompiUCX...)), inPlace(mpich("", nil)),
	}
}

// crowdedConfigs are those of more ranks than cores. OpenMPI must yield there to be usable, and is also
// measured when it does not; the variants that matter only for speed on free cores are left out.
func crowdedConfigs() []config {
	yield := []string{"--mca", "mpi_yield_when_idle", "1"}
	spin := []string{"--mca", "mpi_yield_when_idle", "0"}
	bound := slices.Concat([]string{"--map-by", "core:OVERSUBSCRIBE", "--bind-to", "core:overload-allowed"}, yield) // as gccl perf's are
	ucx := ompi("-ucx-yield1", ucxShm, slices.Concat(yield, ompiUCX)...)
	return []config{
		mpich("", nil), mpich("-polls1", []string{"MPIR_CVAR_POLLS_BEFORE_YIELD=1"}), overTCP(mpich("-tcp", mpichTCP)), inPlace(mpich("", nil)),
		ompi("-yield1", nil, yield...), overTCP(ompi("-tcp-yield1", nil, slices.Concat(yield, ompiTCP)...)),
		ucx, inPlace(ompi("-yield1", nil, yield...)), inPlace(ucx),
		ompi("-yield1-bind", nil, bound...), ompi("-ucx-yield1-bind", ucxShm, slices.Concat(bound, ompiUCX)...),
		ompi("-yield0", nil, spin...), overTCP(ompi("-tcp-yield0", nil, slices.Concat(spin, ompiTCP)...)),
	}
}

// tunedConfigs are OpenMPI's with each of its algorithms: its own choice is not always its best.
func tunedConfigs() (cs []config) {
	tuned := func(coll, key string, alg int) {
		args := slices.Concat(ompiUCX, []string{"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", key, strconv.Itoa(alg)})
		cs = append(cs, only(ompi(fmt.Sprintf("-ucx-alg%d", alg), ucxShm, args...), coll))
	}
	for alg := 2; alg <= 6; alg++ {
		tuned("allreduce", "coll_tuned_allreduce_algorithm", alg)
	}
	for alg := 1; alg <= 4; alg++ {
		tuned("reducescatter", "coll_tuned_reduce_scatter_block_algorithm", alg)
	}
	return cs
}

// job is one process launch: a configuration, a collective, the sizes.
type job struct {
	config
	round, ranks int
	coll         string
	sizes        []int
	check        bool
	tries        int
}

func (j *job) String() string { return fmt.Sprintf("%s %s/%d", j.name, j.coll, j.ranks) }

// command is the job's command line, and its environment beside the process's own.
func (j *job) command(p programs, o *options) (args, env []string) {
	n := strconv.Itoa(j.ranks)
	text := make([]string, len(j.sizes))
	for i, s := range j.sizes {
		text[i] = strconv.Itoa(s)
	}
	sizes := strings.Join(text, ",")
	if j.gccl() {
		args = append([]string{p.gccl, "perf", j.coll, "--ranks", n, "--format", "jsonl", "--budget", o.Budget.String()}, j.args...)
		if j.coll != "barrier" {
			args = append(args, "--sizes", sizes)
		}
		if !j.check {
			args = append(args, "-c", "0")
		}
		return args, j.env
	}
	env = append(env, j.env...)
	switch j.lib {
	case "OpenMPI":
		env = append(env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		args = append([]string{"mpirun.openmpi", "--mca", "btl_base_warn_component_unused", "0", "-n", n}, j.args...)
		if j.ranks > runtime.NumCPU() {
			args = slices.Insert(args, 1, "--oversubscribe")
		}
		args = append(args, p.openmpi)
	case "MPICH":
		args = append(append([]string{"mpirun.mpich", "-n", n}, j.args...), p.mpich)
	case "Gloo":
		args = append([]string{p.gloo, "-n", n}, j.args...)
	}
	if j.coll == "barrier" {
		sizes = "8" // the buffers' size: a barrier has none
	}
	args = append(args, "--coll", j.coll, "--sizes", sizes, "--budget", strconv.FormatFloat(o.Budget.Seconds(), 'g', -1, 64), "--miniters", "3", "--iters", strconv.Itoa(mostIters))
	for _, f := range []struct {
		name string
		on   bool
	}{{"--inplace", j.inout}, {"--huge", j.huge}, {"--nocheck", !j.check}} {
		if f.on {
			args = append(args, f.name)
		}
	}
	return args, env
}
