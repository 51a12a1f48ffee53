package verbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// A queue that could not be armed says so again: who took it for armed would sleep with nobody to ring.
func TestArmFailsAgain(t *testing.T) {
	q := &queue{ring: func() {}, guard: newGuard(func() {}), ch: &ibv.Channel{FD: -1}}
	rails := &railsQueue{ring: func() {}, queues: []*queue{q}}
	for range 2 {
		require.Error(t, q.Arm())
	}
	for range 2 {
		require.Error(t, rails.Arm())
	}
}
