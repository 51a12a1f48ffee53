package executor

import (
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/stretchr/testify/require"
)

// Where lengths are checked by transfer, what a lane expects is its present action's, also before that
// has begun: whoever looks whether a message is there must not look for the one of the action before.
func TestLaneExpectsItsActionsMessage(t *testing.T) {
	call := link.Call{FP: 99, A: 5}
	job := &Job{Plan: &Plan{Layout: Layout{Elem: 4, Pairwise: true}}, Args: Args{Call: call}}
	first, second := &action{length: extent{size: 12, full: 1}}, &action{length: extent{size: 20, full: 1}}
	l := lane{job: job, call: call, size: -1}
	require.Equal(t, pairCall(&call, 12, 4), *l.expects(first))
	require.Equal(t, pairCall(&call, 20, 4), *l.expects(second))
	require.NotEqual(t, pairCall(&call, 12, 4), pairCall(&call, 20, 4))
	job.Plan.Layout.Pairwise, l.call = false, call
	require.Equal(t, call, *l.expects(second))
}
