package ring_test

import (
	"testing"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

func TestAllReduce(t *testing.T) {
	verifytest.Exhaustive(t, schedule.AllReduce, ring.AllReduce, verifytest.Sizes(1, 16))
}
