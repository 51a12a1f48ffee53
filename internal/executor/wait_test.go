package executor

import (
	"context"
	"testing"
	"time"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/stretchr/testify/require"
)

// hookedBell calls a function instead of sleeping, and counts.
type hookedBell struct {
	rdma.Bell
	sleeps int
	hook   func()
}

func (b *hookedBell) Sleep(time.Duration) {
	b.Disarm()
	b.sleeps++
	b.hook()
}

// Between the first sign that a peer is gone and the error, which takes a second look, nobody sleeps: there
// is nothing left that would wake him.
func TestNoSleepOverTheGone(t *testing.T) {
	bell := &hookedBell{Bell: link.NewBell()}
	ms := meshes(t, link.Geometry{Lanes: 1, Slots: 2, SlotBytes: 64}, bell)
	bell.hook = ms[1].Goodbye
	e := New(ms[0], Options{LendMin: 1 << 30, Wait: Wait{Yield: func() {}}})
	p, err := Transfer(1, false).Plan(ms[0], Layout{Elem: 1, Out: []int{8}}, 0)
	require.NoError(t, err)
	job := &Job{Plan: p, Args: Args{Out: make([]byte, 8), Call: link.Call{FP: 7}}}
	var gone *Gone
	require.ErrorAs(t, e.Run(context.Background(), 0, []*Job{job}), &gone)
	require.Equal(t, 1, bell.sleeps)
}
