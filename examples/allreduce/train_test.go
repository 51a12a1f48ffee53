package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/gccl/gccl/examples/allreduce/internal/fashion"
	"github.com/gccl/gccl/examples/allreduce/internal/safetensors"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The job of the README: it trains, checks every step and says so.
func TestTrain(t *testing.T) {
	losses := regexp.MustCompile(`(?m)^\[0\] +\d+ +(\d\.\d{4}) .* % of tolerance`)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "4 ranks, provider shm"},
		{[]string{"-n", "1", "-steps", "7"}, "1 rank, provider none"},
		{[]string{"-n", "3", "-steps", "7", "-provider", "loopback"}, "3 ranks, provider loopback"},
		{[]string{"-n=7", "-steps", "7", "-provider", "shm"}, "7 ranks, provider shm"}, // 1600 images do not come out even
		{[]string{"-n", "2", "-steps", "7", "-provider", "tcp"}, "2 ranks, provider tcp"},
	} {
		out := runProgram(t, t.TempDir(), c.args...)
		require.Zero(t, out.code, out.stderr)
		require.Empty(t, out.stderr)
		require.Contains(t, out.stdout, c.want)
		rows := losses.FindAllStringSubmatch(out.stdout, -1)
		require.GreaterOrEqual(t, len(rows), 3, out.stdout)
		before := math.Inf(1)
		for _, r := range rows {
			loss, err := strconv.ParseFloat(r[1], 64)
			require.NoError(t, err)
			require.Less(t, loss, before, out.stdout)
			before = loss
		}
	}
}

// Ranks that are processes over shared memory and ranks that are goroutines get the same weights.
func TestWeights(t *testing.T) {
	dir := t.TempDir()
	for file, provider := range map[string]string{"a.safetensors": "auto", "b.safetensors": "loopback"} {
		out := runProgram(t, dir, "-n", "3", "-steps", "3", "-provider", provider, "-out", file)
		require.Zero(t, out.code, out.stderr)
	}
	a, err := os.ReadFile(filepath.Join(dir, "a.safetensors"))
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "b.safetensors"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, b))
	ts, err := safetensors.Decode(a)
	require.NoError(t, err)
	require.Len(t, ts, 2)
	require.Equal(t, []int{fashion.Pixels, fashion.Classes}, ts[1].Shape)
	require.Equal(t, tensor.Float32, ts[1].Data.DType())
}

// The gradient is that of the loss, by finite differences.
func TestGradient(t *testing.T) {
	all, err := fashion.Load()
	require.NoError(t, err)
	set := all.Slice(0, 50)
	w := make([]float32, weights)
	for i := range w {
		w[i] = float32(i%7-3) / 64
	}
	g := part(w, set, set.Len())
	for i := 3; i < weights; i += 517 {
		const h = 1.0 / 256
		old := w[i]
		w[i] = old + h
		up := part(w, set, set.Len())[weights]
		w[i] = old - h
		down := part(w, set, set.Len())[weights]
		w[i] = old
		require.InDelta(t, (up-down)/(2*h), g[i], 1e-5, "weight %d", i)
	}
}

// The check sees a gradient that is wrong in one element by little, one that lacks a rank, and NaN.
func TestCompare(t *testing.T) {
	all, err := fashion.Load()
	require.NoError(t, err)
	set, w := all.Slice(0, 40), make([]float32, weights)
	sum := make([]float32, partLen)
	for r := range 4 {
		for i, v := range part(w, share(set, r, 4), 40) {
			sum[i] += float32(v)
		}
	}
	worst, err := compare(w, set, sum, 4)
	require.NoError(t, err)
	require.Greater(t, worst, 0.0)
	good := sum[4000]
	for _, bad := range []float32{good + 1e-6, float32(math.NaN())} {
		sum[4000] = bad
		_, err = compare(w, set, sum, 4)
		require.ErrorContains(t, err, "element 4000")
	}
	sum[4000] = good
	for i, v := range part(w, share(set, 2, 4), 40) {
		sum[i] -= float32(v)
	}
	_, err = compare(w, set, sum, 4)
	require.Error(t, err)
}

func TestGoroutinesLeaveNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	o, err := parse([]string{"-n", "2", "-provider", "loopback", "-steps", "1"})
	require.NoError(t, err)
	require.NoError(t, goroutines(t.Context(), o, io.Discard))
}
