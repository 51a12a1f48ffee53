package main

import (
	"context"
	"math"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// model is a polynomial that is fitted to a sine by gradient descent. Its gradient is a sum over samples,
// which the ranks share, so that the result does not depend on their number.
type model struct {
	step    int64 // steps that have been made
	weights []float64
}

const (
	degree  = 5
	samples = 1000
	rate    = 0.5
)

func newModel() *model { return &model{weights: make([]float64, degree+1)} }

func sample(i int) (x, y float64) {
	x = float64(2*i)/(samples-1) - 1
	return x, math.Sin(3 * x)
}

func (m *model) at(x float64) float64 {
	y := 0.0
	for k := degree; k >= 0; k-- {
		y = y*x + m.weights[k]
	}
	return y
}

// gradient is the part of one of size ranks: of its samples.
func (m *model) gradient(rank, size int) []float64 {
	g := make([]float64, len(m.weights))
	for i := rank * samples / size; i < (rank+1)*samples/size; i++ {
		x, y := sample(i)
		d := (m.at(x) - y) / samples
		for k := range g {
			g[k] += d
			d *= x
		}
	}
	return g
}

// apply makes a step with the gradient of all samples.
func (m *model) apply(g []float64) {
	for k := range m.weights {
		m.weights[k] -= rate * g[k]
	}
	m.step++
}

func (m *model) loss() float64 {
	sum := 0.0
	for i := range samples {
		x, y := sample(i)
		d := m.at(x) - y
		sum += d * d / samples
	}
	return sum
}

// synchronise gives all ranks the state of the one that has come farthest. After a failure ranks may be
// a step apart, and a newcomer has none.
func (m *model) synchronise(ctx context.Context, comm *collective.Comm) error {
	steps := make([]int64, comm.Size())
	mine := []int64{m.step}
	if err := comm.AllGather(ctx, tensor.Of(steps), tensor.Of(mine)); err != nil {
		return err
	}
	root := 0
	for r, s := range steps {
		if s > steps[root] {
			root = r
		}
	}
	// Into a copy: a broadcast that fails leaves the state as it was.
	w := append([]float64(nil), m.weights...)
	if err := comm.Broadcast(ctx, tensor.Of(w), tensor.Of(w), root); err != nil {
		return err
	}
	m.weights, m.step = w, steps[root]
	return nil
}
