package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/gccl/gccl/collective"
)

// maxRows is how many tensors the table shows; the rest is in the row of the whole.
const maxRows = 16

// reduce combines the tensors of the ranks' files, one call for each tensor, so that each has its row
// in the table, and rank 0 writes the result.
func reduce(ctx context.Context, comm *collective.Comm, o *options, out io.Writer) error {
	rank, size := comm.Rank(), comm.Size()
	ts, err := o.load(rank, size)
	if err == nil && rank == 0 && o.Out != "" {
		err = o.checkOut(ts)
	}
	if err := agree(ctx, comm, describe(o.file(rank), ts, err)); err != nil {
		return err
	}
	t := table{out: out, silent: rank != 0}
	hash := sha256.New()
	var bytes int
	var total time.Duration
	for i, x := range ts {
		call := collective.Call{Kind: collective.AllReduce, Dst: x.Data, Src: x.Data, Op: o.Op}
		plan, err := comm.Plan(call)
		if err != nil {
			return err
		}
		if i == 0 {
			t.head(size, plan, fmt.Sprintf("%s of %s, rank 0's from %s", o.Op, count(len(ts), "tensor"), o.file(0)))
			t.columns("tensor")
		}
		took, err := timed(ctx, comm, func() error { return comm.AllReduce(ctx, x.Data, x.Data, o.Op) })
		if err != nil {
			return fmt.Errorf("tensor %q: %w", x.Name, err)
		}
		if i < maxRows {
			t.row(len(x.Data.Bytes()), size, took, plan.Algorithm, fmt.Sprintf("%s %s%v", x.Name, x.Data.DType(), x.Shape))
		}
		hash.Write(x.Data.Bytes())
		bytes += len(x.Data.Bytes())
		total += took
	}
	text, err := identical(ctx, comm, [sha256.Size]byte(hash.Sum(nil)))
	if err != nil {
		return err
	}
	t.row(bytes, size, total, "identical on all ranks: SHA-256 "+text, "all")
	if o.Out == "" || rank != 0 {
		return nil
	}
	if err := o.write(ctx, ts); err != nil {
		return blame(0, "-out: %v", err)
	}
	t.foot("written to " + o.Out)
	return nil
}
