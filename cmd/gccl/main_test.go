package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// asProgram makes the test binary be gccl.
const asProgram = "GCCL_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// cleanEnvironment unsets what a test's environment may say about settings and ranks.
func cleanEnvironment(t *testing.T) {
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "GCCL_") || strings.HasPrefix(name, "NCCL_") || strings.HasPrefix(name, "GLOO_") {
			t.Setenv(name, "") // which Unsetenv alone would not undo
			require.NoError(t, os.Unsetenv(name))
		}
	}
}

// gccl runs a command in this process.
func gccl(t *testing.T, args ...string) (out string, warnings string, err error) {
	t.Helper()
	var b, w bytes.Buffer
	cmd := command(&b)
	cmd.SetErr(&w)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return b.String(), w.String(), err
}

// program runs the test binary as gccl.
func program(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var x *exec.ExitError
	if err != nil && !errors.As(err, &x) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestGolden(t *testing.T) {
	cleanEnvironment(t)
	for name, args := range map[string]string{
		"plan_ring":     "plan allreduce -n 3 --algo ring --rank -1",
		"plan_chosen":   "plan allreduce -n 2 --bytes 1M",
		"plan_root":     "plan broadcast -n 4 --algo tree.Broadcast --root 2 --rank 2 --channels 2",
		"plan_hosts":    "plan allreduce -n 4 --hosts 2,2 --algo TwoLevel",
		"plan_prove":    "plan allreduce -n 4 --algo TwoShot --prove",
		"plan_disjoint": "plan alltoall -n 3 --prove",
		"explain":       "plan scan -n 4 --explain --bytes 1M",
		"sim":           "sim -n 8 --bytes 64-1M --algo ring|TwoShot|HalvingDoubling|TwoLevel",
		"sim_hosts":     "sim -n 16 --hosts-size 4 --host-bandwidth 24 --bytes 16K-16M --algo TwoLevel|TwoShot|tree",
		"sim_broadcast": "sim --collective broadcast -n 5 --root 3 --bytes 1K",
		"sim_large":     "sim -n 512 --bytes 64K --algo ring|RecursiveDoubling|OneShot --max-steps 1e6",
	} {
		out, warnings, err := gccl(t, strings.Fields(args)...)
		require.NoError(t, err, args)
		require.Empty(t, warnings, args)
		file := "testdata/" + name + ".golden"
		got := "$ gccl " + args + "\n" + out
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), got, args)
	}
}

func TestWrongFlags(t *testing.T) {
	cleanEnvironment(t)
	for args, want := range map[string]string{
		"plan barrier":                          `no collective is called "barrier"`,
		"plan allreduce --algo rng":             `no algorithm for allreduce is called "rng"`,
		"plan allreduce -n 4 --hosts 2,3":       "add up to 4",
		"plan allreduce -n 4 --hosts 2":         "2 ranks, not 4",
		"plan allreduce -n 0":                   "at least one rank",
		"plan allreduce -n 100000000":           "-n 100000000: at most 1048576 ranks",
		"plan broadcast -n 2 --root 2":          "need a rank from 0 to 1",
		"plan allreduce --rank 9":               "rank",
		"plan allreduce --local pigeon":         "pigeon",
		"plan allreduce --bytes x":              "not a number",
		"sim --bytes 9-8":                       "need a size",
		"sim --algo TwoShot --trace x.json":     "one size",
		"sim --slots 0 --algo ring":             "slots",
		"sim --hosts-size 0":                    "--hosts-size 0: need at least one",
		"sim -n -1":                             "-n -1: need at least one",
		"sim --collective alltoall --algo ring": `no algorithm for alltoall is called "ring"`,
		"sim --rounds 3":                        "--rounds is for --measure",
		"sim --measure --rounds 0":              "--rounds 0",
		"sim --alpha -1us":                      "cannot be negative",
		"sim --collective magic":                `"magic"; there are allreduce`,
		"sim --collective reduce -r 8":          "-r 8: need a rank from 0 to 7",
		"sim --bytes 1K-":                       "--bytes 1K-: need a size, or from-to",
		"plan":                                  "need one of allreduce",
		"plan allreduce --bytes -5":             "cannot be negative",
		"plan allreduce --channels -1":          "cannot be negative",
		"plan allreduce --load 0":               "--load 0: need at least one",
		"perf":                                  "need one of allreduce",
		"perf allreduces":                       "there are allreduce",
		"perf allreduce -b 1X":                  `"-b, --minbytes" flag: not a number`,
		"perf allreduce --sizes 8,x":            `--sizes" flag: not a number`,
		"perf allreduce -n -1":                  "-n -1",
		"perf allreduce --budget 0s":            "need a time, or -n",
		"perf allreduce --window 2":             "stream alone",
		"perf allreduce -f 1":                   "must exceed 1",
		"perf allreduce -d float99":             "float99",
		"perf allreduce -o sub":                 "sub",
		"perf allreduce -r x":                   "need a rank",
		"perf allreduce --format csv":           "need nccl, osu or jsonl",
		"perf allreduce -b 2 -e 1":              "-b 2 -e 1: the smallest size exceeds the largest",
		"perf scan -o avg":                      "scan has no avg",
		"tune":                                  "one rank has nothing to choose",
		"tune --ranks 1":                        "one rank has nothing to choose",
		"tune --collective barrier":             `"barrier"; there are allreduce`,
		"tune -b 1K -e 8":                       "-b 1K -e 8",
		"tune --rounds 0":                       "--rounds 0",
		"tune -f 1":                             "must exceed 1",
		"run -n -1 true":                        "at least one rank",
		"run -n 3 --hosts a:2 true":             "room for 2",
		"run --hosts a:x true":                  `"x" ranks`,
		"run --hosts a --hostfile b true":       "none of the others can be",
		"run":                                   "need a PROGRAM to start",
		"why":                                   "need files of flight records",
		"startup --ways magic":                  "there are bootstrap, goroutines, processes",
		"startup -n 0":                          "--ranks 0: need at least one",
		"run -x =1 true":                        "VAR",
		"run -x GCCL_NOT_THERE true":            "is not set",
		"run --bind-to socket true":             "none or core",
		"version 1":                             "unknown command",
	} {
		_, _, err := gccl(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
	}
}

func TestEnvShowsEverySetting(t *testing.T) {
	cleanEnvironment(t)
	out, warnings, err := gccl(t, "env", "--long")
	require.NoError(t, err)
	require.Empty(t, warnings)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Equal(t, []string{"SETTING", "VALUE", "SOURCE", "DEFAULT", "ALSO", "READ", "TYPE", "MEANING"}, strings.Fields(lines[0]))
	settings := collective.Settings()
	require.Len(t, lines, 1+len(settings))
	for i, s := range settings {
		also := strings.Join(s.Aliases, ",")
		if also == "" {
			also = "-"
		}
		require.Equal(t, strings.Join([]string{s.Name, s.Default, "default", s.Default, also, s.Type, s.Help}, " "), strings.Join(strings.Fields(lines[i+1]), " "))
	}
}

func TestEnvShowsSourcesAndTypos(t *testing.T) {
	cleanEnvironment(t)
	t.Setenv("NCCL_ALGO", "Ring")
	t.Setenv("GCCL_TIMEOTU", "1s")
	t.Setenv("GCCL_SLOTS", "16")
	out, warnings, err := gccl(t, "env")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^GCCL_ALGO +Ring +NCCL_ALGO$`, out)
	require.Regexp(t, `(?m)^GCCL_SLOTS +16 +GCCL_SLOTS$`, out)
	require.Equal(t, "gccl: warning: GCCL_TIMEOTU is not a setting; did you mean GCCL_TIMEOUT?\n", warnings)
	t.Setenv("GCCL_SLOTS", "many")
	_, _, err = gccl(t, "env")
	require.ErrorContains(t, err, `GCCL_SLOTS="many"`)
}

func TestSimWritesTraceAndPlot(t *testing.T) {
	cleanEnvironment(t)
	trace, plot := filepath.Join(t.TempDir(), "t.json"), filepath.Join(t.TempDir(), "p.svg")
	_, _, err := gccl(t, "sim", "-n", "4", "--algo", "TwoShot", "--bytes", "1M", "--trace", trace)
	require.NoError(t, err)
	b, err := os.ReadFile(trace)
	require.NoError(t, err)
	var doc struct{ TraceEvents []struct{ Pid, Tid int } }
	require.NoError(t, json.Unmarshal(b, &doc))
	require.Greater(t, len(doc.TraceEvents), 4*6)

	_, _, err = gccl(t, "sim", "-n", "4", "--bytes", "8-1M", "--plot", plot)
	require.NoError(t, err)
	b, err = os.ReadFile(plot)
	require.NoError(t, err)
	lines := 0
	dec := xml.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if s, ok := tok.(xml.StartElement); ok && s.Name.Local == "polyline" {
			lines++
			for _, a := range s.Attr {
				if a.Name.Local != "points" {
					continue
				}
				points := strings.Fields(a.Value)
				require.Len(t, points, 18) // 8, 16, … 1M
				for _, p := range points {
					x, y, _ := strings.Cut(p, ",")
					fx, err1 := strconv.ParseFloat(x, 64)
					fy, err2 := strconv.ParseFloat(y, 64)
					require.NoError(t, errors.Join(err1, err2))
					require.True(t, fx >= svgLeft && fx <= svgLeft+plotWidth && fy >= svgTop && fy <= svgTop+plotHeight, p)
				}
			}
		}
	}
	require.Equal(t, 8, lines)
}

func TestRun(t *testing.T) {
	cleanEnvironment(t)
	out, errs, code := program(t, "run", "-n", "3", "-l", "-x", "A=b c", "sh", "-c",
		`echo "$GCCL_RANK/$GCCL_SIZE $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port} $A $1" -l`, "-n", "9")
	require.Zero(t, code, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.ElementsMatch(t, []string{
		"[0] 0/3 0/3 0/3 127.0.0.1 port b c 9 -l", "[1] 1/3 1/3 1/3 127.0.0.1 port b c 9 -l", "[2] 2/3 2/3 2/3 127.0.0.1 port b c 9 -l"}, lines)

	_, errs, code = program(t, "run", "-n", "2", "sh", "-c", `[ $RANK = 1 ] && exit 7; sleep 60`)
	require.Equal(t, 7, code)
	require.Equal(t, "gccl: rank 1: exit status 7\n", errs)
	_, errs, code = program(t, "run", "-n", "2", "sh", "-c", `[ $RANK = 0 ] && kill -KILL $$; sleep 60`)
	require.Equal(t, 128+9, code, errs)
	out, _, code = program(t, "run", "-n", "2", "--survive", "sh", "-c", `[ $RANK = 0 ] && exit 6; sleep 0.5; echo alive`)
	require.Equal(t, 6, code)
	require.Equal(t, "alive\n", out)
	_, errs, code = program(t, "run", "--timeout", "300ms", "sleep", "60")
	require.Equal(t, 124, code)
	require.Equal(t, "gccl: timed out after 300ms\n", errs)
	_, errs, code = program(t, "run", "/no/such/program")
	require.Equal(t, 127, code, errs)
}

func TestRunBinds(t *testing.T) {
	cleanEnvironment(t)
	out, errs, code := program(t, "run", "-n", "2", "--bind-to", "core", "grep", "Cpus_allowed_list", "/proc/self/status")
	if code != 0 {
		t.Skip("no such file here: ", errs)
	}
	for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
		require.Regexp(t, `^Cpus_allowed_list:\s+\d+$`, l)
	}
}

func TestRunPassesSignalsOn(t *testing.T) {
	cleanEnvironment(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "run", "-n", "2", "sh", "-c", `trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var got strings.Builder
	buf := make([]byte, 256)
	signalled := false
	for {
		n, err := pipe.Read(buf)
		got.Write(buf[:n])
		if !signalled && strings.Count(got.String(), "ready") == 2 {
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			signalled = true
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	require.Equal(t, 128+int(syscall.SIGTERM), cmd.ProcessState.ExitCode())
	require.Equal(t, 2, strings.Count(got.String(), "bye"), got.String())
}

var rowPattern = regexp.MustCompile(`(?m)^ +\d+ +\d+ +float32 +sum +-1( +[\d.]+){3} +0( +[\d.]+){3} +0$`)

func TestPerf(t *testing.T) {
	cleanEnvironment(t)
	file := filepath.Join(t.TempDir(), "out.json")
	out, errs, code := program(t, "perf", "allreduce", "--ranks", "3", "-b", "64", "-e", "4K", "-f", "8", "-n", "3", "-w", "1", "-J", file)
	require.Zero(t, code, errs)
	require.Len(t, rowPattern.FindAllString(out, -1), 3, out)
	require.Len(t, regexp.MustCompile(`(?m)^#  Rank +\d Group  0 Pid +\d+ on `).FindAllString(out, -1), 3, out)
	require.Contains(t, out, "\n# Out of bounds values : 0 OK\n# Avg bus bandwidth    : ")
	require.Contains(t, out, "minBytes 64 maxBytes 4096 step: 8(factor) warmup iters: 1 iters: 3 agg iters: 1 validation: 1")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	var doc document
	require.NoError(t, json.Unmarshal(b, &doc))
	require.Len(t, doc.Results, 3)
	require.Len(t, doc.Devices, 3)
	require.True(t, doc.Bounds.Okay)
	require.Equal(t, 512, doc.Results[1].Size)
	require.Equal(t, 3, doc.Results[1].Iters)
	require.Positive(t, doc.Results[1].In.BusBW)

	out, errs, code = program(t, "perf", "broadcast", "--ranks", "2", "--sizes", "1K,8", "-n", "3", "--format", "osu", "-I")
	require.Zero(t, code, errs)
	require.Regexp(t, `(?m)^# Size +Avg Latency\(us\) +Min Latency\(us\) +Max Latency\(us\) +Iterations\n1024 +[\d.]+ +[\d.]+ +[\d.]+ +3\n8 `, out)

	// Every type, operation and root, checked.
	for _, c := range benchmarkNames() {
		out, errs, code = program(t, "perf", c, "--ranks", "3", "--sizes", "96", "-n", "1", "-d", "all", "-o", "all", "-r", "all")
		require.Zero(t, code, "%s: %s", c, errs)
		require.Contains(t, out, "# Out of bounds values : 0 OK")
	}

	t.Setenv("GCCL_SLOTS", "7") // which every rank refuses
	out, errs, code = program(t, "perf", "allreduce", "--ranks", "4")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Regexp(t, `^gccl: rank \d: .*GCCL_SLOTS="7".*power of two.*\n$`, errs)
}

// Buffers that the host cannot hold are refused before a rank is started.
func TestNoRoom(t *testing.T) {
	cleanEnvironment(t)
	if _, err := os.Stat(meminfo); err != nil {
		t.Skip("this system does not tell how much memory there is: ", err)
	}
	for _, args := range [][]string{
		{"perf", "allreduce", "--ranks", "2", "-e", "1048576G"}, {"perf", "stream", "--sizes", "1G", "-W", "1048576"}, {"tune", "--ranks", "2", "-e", "1048576G"},
	} {
		out, _, err := gccl(t, args...)
		require.ErrorContains(t, err, "of memory are available", args)
		require.Empty(t, out)
	}
	require.NoError(t, roomFor(2, 1<<20))
	barrier := perfOptions{Collective: "barrier", Ranks: 1 << 30, Max: 64 << 20, Factor: 2, Window: 1, Budget: 1, DType: "float", Op: "sum", Root: "0", Format: "nccl"}
	require.NoError(t, barrier.validate(), "it has no buffers")
	t.Setenv(rankEnv, "{}")
	require.NoError(t, roomFor(1, 1<<60), "the launching process has asked for all ranks")
}

// Wrong numbers of ranks are refused before anything is printed.
func TestWrongRanks(t *testing.T) {
	cleanEnvironment(t)
	for want, args := range map[string][]string{
		"-n 0: need at least one rank":          {"plan", "allreduce", "-n", "0"},
		"-n -1: need at least one rank":         {"plan", "allreduce", "-n", "-1", "--explain"},
		"--rank 9: need a rank from 0 to 1":     {"plan", "allreduce", "--rank", "9"},
		"-r 2: need a rank from 0 to 1":         {"plan", "broadcast", "-r", "2"},
		"--ranks 0: need at least one rank":     {"perf", "allreduce", "--ranks", "0"},
		"--ranks -2: need at least one rank":    {"perf", "allreduce", "--ranks", "-2"},
		"--ranks -1: need at least one rank":    {"tune", "--ranks", "-1"},
		"--ranks 1: pingpong needs two ranks":   {"perf", "pingpong", "--ranks", "1"},
		"pingpong needs two ranks: use --ranks": {"perf", "pingpong"},
	} {
		out, _, err := gccl(t, args...)
		require.ErrorContains(t, err, want)
		require.Empty(t, out)
	}
}

func TestTuneWritesWhatPlanReads(t *testing.T) {
	cleanEnvironment(t)
	file := filepath.Join(t.TempDir(), "tuning.json")
	tune := []string{"tune", "--ranks", "2", "--collective", "allreduce,gather", "-b", "64", "-e", "4K", "-f", "64", "--budget", "100us", "--rounds", "1", "-o", file}
	_, errs, code := program(t, tune...)
	require.Zero(t, code, errs)
	t.Setenv("GCCL_TUNING_FILE", file)
	out, _, err := gccl(t, "plan", "allreduce", "-n", "2", "--explain", "--bytes", "4K")
	require.NoError(t, err)
	require.Contains(t, out, "tuning file has measured")
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	_, errs, code = program(t, append(tune, "-R=false")...)
	require.NotZero(t, code) // no such flag
	require.Contains(t, errs, "unknown shorthand flag")
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, entries, 1)

	// A file that cannot be written is found before anything is measured.
	for _, nowhere := range []string{"/no/such/directory/tuning.json", "/dev/null"} {
		out, errs, code = program(t, "tune", "--ranks", "2", "-o", nowhere)
		require.Equal(t, 1, code)
		require.Contains(t, errs, nowhere)
		require.Empty(t, out)
	}
}

func TestSpread(t *testing.T) {
	ns := make([]int64, 1000)
	for i := range ns {
		ns[i] = int64(i+1) * 1000
	}
	s, err := spreadOf(ns, 1)
	require.NoError(t, err)
	require.InDelta(t, 1, s.Min, 0.01)
	require.InDelta(t, 1000, s.Max, 0.01)
	require.InDelta(t, 500.5, s.Avg, 0.01)
	require.InDelta(t, 500, s.P50, 1)
	require.InDelta(t, 950, s.P95, 2)
	require.InDelta(t, 990, s.P99, 2)
	require.InDelta(t, 288.7, s.Stdev, 0.1)
	s, err = spreadOf([]int64{4000, 4000}, 2)
	require.NoError(t, err)
	require.InDelta(t, 2, s.P99, 0.01)
	require.Zero(t, s.Stdev)
}

func TestRankErrors(t *testing.T) {
	var out bytes.Buffer
	r := &rankErrors{out: &out, said: map[int]string{}}
	for _, l := range []string{"hello\n", rankErrorMark + "1 it broke\n", rankErrorMark + "x y\n", rankErrorMark + "0 peer lost\n"} {
		n, err := r.Write([]byte(l))
		require.NoError(t, err)
		require.Equal(t, len(l), n)
	}
	require.Equal(t, "hello\n"+rankErrorMark+"x y\n", out.String())
	require.NoError(t, r.explain(nil))
}
