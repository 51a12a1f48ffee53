package ring_test

import (
	"fmt"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify"
)

// A schedule is text for people, data for the executor, and a theorem for the verifier.
func Example() {
	s, err := ring.AllReduce(0, 2, schedule.Shape{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(s)
	rep, err := verify.Check(ring.AllReduce, schedule.AllReduce, 2, schedule.Shape{}, verify.Options{})
	fmt.Printf("%d steps, %d of %d chunks sent by every rank, %v\n", rep.Steps, rep.Sent, rep.Chunks, err)
	// Output:
	// allreduce rank 0 of 2 root 0 in 2 out 2 ahead 1 early lazy
	// lane
	//   send in[0] to 1
	//   recv-reduce out[1] = from 1 + in[1] final
	//   send out[1] to 1
	//   recv out[0] from 1
	// 2 steps, 2 of 2 chunks sent by every rank, <nil>
}
