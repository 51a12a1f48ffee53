package collective_test

import (
	"context"
	"fmt"
	"log"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
	"golang.org/x/sync/errgroup"
)

// Four ranks, here goroutines, average their gradients. Ranks that are processes call collective.Init.
func Example() {
	ctx := context.Background()
	comms, err := collective.NewLocal(ctx, 4, collective.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var ranks errgroup.Group
	for _, comm := range comms {
		ranks.Go(func() error {
			grad := []float32{float32(comm.Rank()), 1}
			if err := comm.AllReduce(ctx, tensor.Of(grad), tensor.Of(grad), tensor.Avg); err != nil {
				return err
			}
			if comm.Rank() == 0 {
				fmt.Println(grad)
			}
			return comm.Close()
		})
	}
	if err := ranks.Wait(); err != nil {
		log.Fatal(err)
	}
	// Output: [1.5 1]
}
