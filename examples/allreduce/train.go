package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/examples/allreduce/internal/fashion"
	"github.com/gccl/gccl/tensor"
)

const (
	heldOut      = 400 // images kept for measuring accuracy
	learningRate = 0.1
)

// training is one rank's side of the job.
type training struct {
	comm            *collective.Comm
	set, mine, test fashion.Set // all that is learnt from, this rank's share of it, and what is held out
	weights         []float32
	call            collective.Call // sums the ranks' parts of the gradient
	part, sum       []float32       // its tensors
}

func newTraining(comm *collective.Comm) (*training, error) {
	all, err := fashion.Load()
	if err != nil {
		return nil, err
	}
	t := &training{comm: comm, set: all.Slice(0, all.Len()-heldOut), test: all.Slice(all.Len()-heldOut, all.Len())}
	if comm.Size() > t.set.Len() {
		return nil, fmt.Errorf("%d images for %d ranks", t.set.Len(), comm.Size())
	}
	t.mine = share(t.set, comm.Rank(), comm.Size())
	t.weights, t.part, t.sum = make([]float32, weights), make([]float32, partLen), make([]float32, partLen)
	t.call = collective.Call{Kind: collective.AllReduce, Dst: tensor.Of(t.sum), Src: tensor.Of(t.part), Op: tensor.Sum}
	return t, nil
}

// train trains the softmax classifier by gradient descent. Each rank computes the gradient on its
// share of the images, and AllReduce makes the gradient of the whole of them, which rank 0 holds
// against the one that it computes alone.
func train(ctx context.Context, comm *collective.Comm, o *options, out io.Writer) error {
	t, err := newTraining(comm)
	if err != nil {
		return err
	}
	plan, err := comm.Plan(t.call)
	if err != nil {
		return err
	}
	if o.Out != "" && comm.Rank() == 0 {
		err = o.checkOut(weightTensors(t.weights))
	}
	if err := agree(ctx, comm, describe("", nil, err)); err != nil {
		return err
	}
	tab := table{out: out, silent: comm.Rank() != 0}
	tab.head(comm.Size(), plan, fmt.Sprintf("%d images of Fashion-MNIST, %d of them here; gradient of a softmax classifier, %v", t.set.Len(), t.mine.Len(), t.call.Src))
	tab.columns("step", "loss", "accuracy")
	for step := range o.Steps {
		took, checked, err := t.step(ctx)
		if err != nil {
			return fmt.Errorf("step %d: %w", step+1, err)
		}
		if n := step + 1; n == 1 || n == o.Steps || n%5 == 0 {
			row := []string{fmt.Sprint(n), fmt.Sprintf("%.4f", t.sum[weights]), fmt.Sprintf("%.1f %%", 100*accuracy(t.weights, t.test))}
			tab.row(len(t.call.Src.Bytes()), comm.Size(), took, checked, row...)
		}
	}
	tab.foot("Tolerance, element by element: one float32 rounding a rank, ranks × 2^-24 × the sum of the shares' magnitudes,",
		"from the gradient that rank 0 computes alone in float64. All ranks hold the same bits, by SHA-256.")
	if o.Out == "" || comm.Rank() != 0 {
		return nil
	}
	if err := o.write(ctx, weightTensors(t.weights)); err != nil {
		return blame(0, "-out: %v", err)
	}
	tab.line("weights written to %s", o.Out)
	return nil
}

// step makes one step of gradient descent. It returns how long the AllReduce took, and in what way its
// result was found right.
func (t *training) step(ctx context.Context) (took time.Duration, checked string, err error) {
	for i, v := range part(t.weights, t.mine, t.set.Len()) {
		t.part[i] = float32(v)
	}
	took, err = timed(ctx, t.comm, func() error { return t.comm.AllReduce(ctx, t.call.Dst, t.call.Src, t.call.Op) })
	if err != nil {
		return 0, "", err
	}
	hash, err := identical(ctx, t.comm, sha256.Sum256(t.call.Dst.Bytes()))
	if err != nil {
		return 0, "", err
	}
	if t.comm.Rank() == 0 { // which alone says so
		worst, err := compare(t.weights, t.set, t.sum, t.comm.Size())
		if err != nil {
			return 0, "", err
		}
		checked = fmt.Sprintf("%.0f %% of tolerance, bits %s", 100*worst, hash)
	}
	for i := range t.weights {
		t.weights[i] -= learningRate * t.sum[i]
	}
	return took, checked, nil
}

// weightTensors is the classifier as the tensors of a file.
func weightTensors(w []float32) []named {
	x := tensor.Of(w)
	return []named{
		{Name: "weight", Shape: []int{fashion.Pixels, fashion.Classes}, Data: x.Slice(0, fashion.Pixels*fashion.Classes)},
		{Name: "bias", Shape: []int{fashion.Classes}, Data: x.Slice(fashion.Pixels*fashion.Classes, weights)},
	}
}

// share is a rank's part of the images; the first ranks get one more where they do not come out even.
func share(set fashion.Set, rank, size int) fashion.Set {
	return set.Slice(rank*set.Len()/size, (rank+1)*set.Len()/size)
}

// compare holds a reduced gradient against that of the whole set, computed here. It returns the
// largest difference as a fraction of what is tolerated. Each rank rounds its part to float32, and
// the sum of n parts is rounded n−1 times: n roundings, each of at most 2^-24 of the sum of the
// parts' magnitudes.
func compare(w []float32, set fashion.Set, got []float32, ranks int) (worst float64, err error) {
	want := part(w, set, set.Len())
	size := make([]float64, partLen)
	for r := range ranks {
		for i, v := range part(w, share(set, r, ranks), set.Len()) {
			size[i] += math.Abs(v)
		}
	}
	for i := range want {
		tolerance := float64(ranks)*0x1p-24*size[i] + 0x1p-140 // and denormals
		d := math.Abs(float64(got[i])-want[i]) / tolerance
		if !(d <= 1) {
			return d, fmt.Errorf("element %d of the gradient is %v, the whole set gives %v: more than %.3g apart", i, got[i], want[i], tolerance)
		}
		worst = max(worst, d)
	}
	return worst, nil
}

// timed makes a collective after a barrier and returns its time on the slowest rank.
func timed(ctx context.Context, comm *collective.Comm, call func() error) (time.Duration, error) {
	if err := comm.Barrier(ctx); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := call(); err != nil {
		return 0, err
	}
	ns := []int64{time.Since(start).Nanoseconds()}
	err := comm.AllReduce(ctx, tensor.Of(ns), tensor.Of(ns), tensor.Max)
	return time.Duration(ns[0]), err
}

// identical fails unless all ranks bring the same hash, and returns the beginning of it as text.
func identical(ctx context.Context, comm *collective.Comm, hash [sha256.Size]byte) (string, error) {
	all := make([]byte, len(hash)*comm.Size())
	if err := comm.AllGather(ctx, tensor.Of(all), tensor.Of(hash[:])); err != nil {
		return "", err
	}
	for r := range comm.Size() {
		if [sha256.Size]byte(all[r*len(hash):]) != [sha256.Size]byte(all) {
			return "", blame(r, "the result differs from rank 0's")
		}
	}
	return fmt.Sprintf("%x", all[:4]), nil
}
