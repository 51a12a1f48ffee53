// Command mean averages a gradient over all ranks. The README shows it.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

func main() {
	if err := mean(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func mean(ctx context.Context) error {
	comm, err := collective.Init(ctx) // the launcher's environment says which rank this is
	if err != nil {
		return err
	}
	defer comm.Close()

	grad := []float32{float32(comm.Rank()), 1}
	t := tensor.Of(grad) // a view, not a copy
	if err := comm.AllReduce(ctx, t, t, tensor.Avg); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: %v\n", comm.Rank(), comm.Size(), grad)
	return nil
}
