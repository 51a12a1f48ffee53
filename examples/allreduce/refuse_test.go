package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneLine holds a failed run against its contract: one line that says what is wrong, in these words,
// nothing on standard output, and no file that was not there before.
func oneLine(t *testing.T, dir string, code int, want []string, args ...string) {
	t.Helper()
	before := names(t, dir)
	out := runProgram(t, dir, args...)
	require.Equal(t, code, out.code, "%v: %s", args, out.stderr)
	require.Empty(t, out.stdout, "%v", args)
	require.Equal(t, 1, strings.Count(out.stderr, "\n"), "%v:\n%s", args, out.stderr)
	for _, w := range want {
		require.Contains(t, out.stderr, w, "%v", args)
	}
	require.Equal(t, before, names(t, dir), "%v", args)
}

// Wrong arguments are refused before any rank is started.
func TestWrongArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-in grad.npy", "-in grad.npy: want one %d"},
		{"-in %d-%d.npy", "want one %d"},
		{"-in grad-%d.txt", "ends in .npy or .safetensors"},
		{"-in %d.npy -out avg.csv", "-out avg.csv: want a name that ends in"},
		{"-in %d.npy -op median", "-op median: there are sum"},
		{"-in %d.npy -steps 3", "-steps is for training"},
		{"-op sum", "-op is for the tensors of -in"},
		{"-n -1", "-n -1: want 1 to 256"},
		{"-n 1000", "-n 1000"},
		{"-n three", `invalid value "three"`},
		{"-provider infiniband", "-provider infiniband: want auto"},
		{"-provider loopback -n 0", "no other launcher"},
		{"-timeout 0s", "want a positive time"},
		{"-steps 0", "-steps 0"},
		{"-nosuchflag", "not defined: -nosuchflag"},
		{"grad.npy", `"grad.npy" is no flag`},
	} {
		oneLine(t, t.TempDir(), 2, []string{c.want}, strings.Fields(c.args)...)
	}
}

// What is wrong with the files is said once, with rank, file and tensor.
func TestWrongFiles(t *testing.T) {
	f32, bf16, i32 := formats[4], formats[3], formats[8]
	rng := rand.New(rand.NewPCG(7, 8))
	data := func(f format) []byte {
		in, _ := f.data(rng)
		return f.bytes(in[0])
	}
	safe := func(fs ...format) []byte {
		var all [][]byte
		for _, f := range fs {
			all = append(all, data(f))
		}
		return safeFile(fs, all)
	}
	in := []string{"-n", "3", "-in", "g-%d.safetensors", "-out", "out.safetensors"}
	inNpy := []string{"-n", "3", "-in", "g-%d.npy", "-out", "out.npy"}
	for _, c := range []struct {
		name string
		make func(dir string) // what is different from three good files
		want []string
		args []string
	}{
		{"missing", func(dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "g-1.npy"))) },
			[]string{"[1] ", "rank 1: ", "g-1.npy: no such file"}, inNpy},
		{"missing on all but one", func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "g-0.npy")))
			require.NoError(t, os.Remove(filepath.Join(dir, "g-2.npy")))
		}, []string{"[0] ", "g-0.npy: no such file"}, inNpy},
		{"truncated npy", func(dir string) { put(t, dir, "g-2.npy", npyFile(f32, 1, data(f32))[:200]) },
			[]string{"[2] ", "rank 2: g-2.npy: the file is truncated"}, inNpy},
		{"truncated safetensors", func(dir string) { b := safe(f32, i32); put(t, dir, "g-0.safetensors", b[:len(b)-1]) },
			[]string{"[0] ", `rank 0: g-0.safetensors: tensor "layer.I32": the file is truncated`}, in},
		{"shape", func(dir string) {
			put(t, dir, "g-0.safetensors", []byte(strings.Replace(string(safe(f32, i32)), "[4, 10]", "[10, 4]", 1)))
		}, []string{"[0] ", `g-0.safetensors: tensor "layer.F32" is float32[10 4], but float32[4 10] on rank 1 (g-1.safetensors)`}, in},
		{"type", func(dir string) {
			put(t, dir, "g-2.safetensors", []byte(strings.Replace(string(safe(f32, i32)), `"I32"`, `"U32"`, 1)))
		}, []string{"[2] ", `g-2.safetensors: tensor "layer.I32" is uint32[4 10], but int32[4 10] on rank 0`}, in},
		{"missing tensor", func(dir string) { put(t, dir, "g-1.safetensors", safe(f32)) },
			[]string{"[1] ", `g-1.safetensors: tensor "layer.I32" is missing, which is int32[4 10] on rank 0 (g-0.safetensors)`}, in},
		{"extra tensor", func(dir string) { put(t, dir, "g-1.safetensors", safe(f32, i32, bf16)) },
			[]string{"[1] ", `g-1.safetensors: tensor "layer.BF16", bfloat16[4 10], does not exist on rank 0`}, in},
		{"operation", func(string) {}, []string{"[0] ", `rank 0: g-0.safetensors: tensor "layer.F32": -op bitand`, "only for integers"},
			append([]string{"-op", "bitand"}, in...)},
		{"operation, goroutines", func(string) {}, []string{`rank 0: g-0.safetensors: tensor "layer.F32": -op bitxor`},
			append([]string{"-op", "bitxor", "-provider", "loopback"}, in...)},
		{"type, goroutines", func(dir string) {
			put(t, dir, "g-2.safetensors", []byte(strings.Replace(string(safe(f32, i32)), `"I32"`, `"U32"`, 1)))
		}, []string{"rank 2: g-2.safetensors", `"layer.I32"`}, append([]string{"-provider", "loopback"}, in...)},
		{"garbage", func(dir string) { put(t, dir, "g-1.npy", []byte("hello")) }, []string{"[1] ", "g-1.npy: not a .npy file"}, inNpy},
		{"Fortran order", func(dir string) {
			put(t, dir, "g-1.npy", []byte(strings.Replace(string(npyFile(f32, 1, data(f32))), "False", "True ", 1)))
		}, []string{"[1] ", "g-1.npy: Fortran order"}, inNpy},
		{"no tensors", func(dir string) { put(t, dir, "g-1.safetensors", safe()) }, []string{"[1] ", "no tensor in it"}, in},
		{"folder", func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "g-1.npy")))
			require.NoError(t, os.Mkdir(filepath.Join(dir, "g-1.npy"), 0o777))
		}, []string{"[1] ", "g-1.npy: not a regular file"}, inNpy},
		{"pipe that nobody writes", func(dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "g-1.npy")))
			require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "g-1.npy"), 0o666))
		}, []string{"[1] ", "g-1.npy: not a regular file"}, inNpy},
		{"output of many tensors", func(string) {}, []string{"[0] ", "-out out.npy: a .npy file holds one tensor, there are 2"},
			[]string{"-n", "3", "-in", "g-%d.safetensors", "-out", "out.npy"}},
		{"output type", func(dir string) {
			for r := range 3 {
				put(t, dir, fmt.Sprintf("g-%d.safetensors", r), safe(bf16))
			}
		}, []string{"[0] ", `-out out.npy: tensor "layer.BF16": the .npy format has no bfloat16`},
			[]string{"-n", "3", "-in", "g-%d.safetensors", "-out", "out.npy"}},
		{"output folder", func(string) {}, []string{"[0] ", "no such file"}, append([]string{"-n", "3"}, "-in", "g-%d.npy", "-out", "nowhere/out.npy")},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for r := range 3 {
				put(t, dir, fmt.Sprintf("g-%d.safetensors", r), safe(f32, i32))
				put(t, dir, fmt.Sprintf("g-%d.npy", r), npyFile(f32, 1, data(f32)))
			}
			c.make(dir)
			oneLine(t, dir, 1, c.want, c.args...)
		})
	}
}

// A provider that cannot be had is one error, too, though all ranks find it.
func TestProviderUnavailable(t *testing.T) {
	t.Setenv("GCCL_SLOTS", "3")
	oneLine(t, t.TempDir(), 1, []string{"[0] ", "invalid"}, "-n", "4")
}

// With as many ranks of one kind as of the other the first is right; with fewer, the many are.
func TestVerdict(t *testing.T) {
	kind := func(shape int) manifest { return manifest{File: "f", Tensors: []entry{{"w", "int8", []int{shape}}}} }
	for _, c := range []struct {
		shapes []int
		blame  int
	}{{[]int{1, 2}, 1}, {[]int{2, 1, 1}, 0}, {[]int{1, 1, 2, 2}, 2}, {[]int{1, 2, 1, 3}, 1}} {
		var all []manifest
		for _, s := range c.shapes {
			all = append(all, kind(s))
		}
		var f *failure
		require.ErrorAs(t, verdict(all), &f)
		require.Equal(t, c.blame, f.blame, "%v", c.shapes)
		all[len(all)-1] = manifest{Error: "broken"}
		require.ErrorAs(t, verdict(all), &f)
		require.Equal(t, len(all)-1, f.blame)
	}
	require.NoError(t, verdict([]manifest{kind(1), kind(1)}))
}
