package ring_test

import (
	"testing"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

func TestAllReduce(t *testing.T) {
	verifytest.Exhaustive(t, schedule.AllReduce, ring.AllReduce, verifytest.Sizes(1, 64))
}
func TestReduceScatter(t *testing.T) {
	verifytest.Exhaustive(t, schedule.ReduceScatter, ring.ReduceScatter, verifytest.Sizes(1, 64))
}
func TestAllGather(t *testing.T) {
	verifytest.Exhaustive(t, schedule.AllGather, ring.AllGather, verifytest.Sizes(1, 64))
}
func TestBroadcast(t *testing.T) {
	verifytest.Shapes(t, schedule.Broadcast, ring.Broadcast, verifytest.Sizes(1, 64), schedule.Shape{Pieces: 3})
}
func TestReduce(t *testing.T) {
	verifytest.Shapes(t, schedule.Reduce, ring.Reduce, verifytest.Sizes(1, 64), schedule.Shape{Pieces: 3})
}
