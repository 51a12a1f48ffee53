package verifytest

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
)

// TestProveObjects spoils every field of an Info, and a schedule, once.
func TestProveObjects(t *testing.T) {
	for _, tc := range []struct {
		name  string // of the algorithm
		spoil func(info *schedule.Info)
		want  string
	}{
		{"ring.AllReduce", func(i *schedule.Info) { i.Ordered = true }, "not Ordered"},
		{"ring.AllReduce", func(i *schedule.Info) { i.Canonical = true }, "not Canonical"},
		{"ring.ReduceScatter", func(i *schedule.Info) { i.Uneven = true }, "not Uneven: some step moves a chunk into another block"},
		{"ring.AllGather", func(i *schedule.Info) { i.Uneven = false }, "Uneven holds for all sizes that were tried, but this is not declared"},
		{"ring.AllGather", func(i *schedule.Info) { i.InPlace = false }, "InPlace is false, but Disjoint is false"},
		{"ring.AllGather", func(i *schedule.Info) { i.Collective = schedule.AllReduce }, "the schedule is for allgather, not allreduce"},
		{"ring.AllGather", spoil(func(s *schedule.Schedule) { s.Early = false }), "Early holds for all sizes that were tried, but this is not declared"},
		{"ring.AllGather", spoil(func(s *schedule.Schedule) { s.Lazy = false }), "Lazy holds for all sizes that were tried, but this is not declared"},
		{"ring.Reduce", spoil(func(s *schedule.Schedule) { s.Lazy = true }), "not lazy"},
		{"ring.AllReduce", spoil(func(s *schedule.Schedule) { s.Ahead = 0 }), "deadlock with 1 slots"},
		{"ring.AllReduce", func(i *schedule.Info) {
			i.Supports = func(size int, _ schedule.Shape) error {
				if size == 7 {
					return errors.New("not seven")
				}
				return nil
			}
		}, "Supports refuses, but Make serves rank 0"},
		{"ring.AllReduce", func(i *schedule.Info) {
			i.Supports = func(int, schedule.Shape) error { return errors.New("never") }
			i.Make = func(int, int, schedule.Shape) (s schedule.Schedule, err error) { return s, errors.New("never") }
		}, "no size was served"},
		{"ring.AllReduce", func(i *schedule.Info) {
			cost := i.Cost
			i.Cost = func(size int, shape schedule.Shape) schedule.Cost {
				c := cost(size, shape)
				c.Reduced = c.Sent
				return c
			}
		}, "cost: counted"},
	} {
		for _, info := range ring.Algorithms() {
			if info.Name != tc.name {
				continue
			}
			p := prover{info: info, always: facts{true, true, true, true, true}, logf: t.Logf}
			tc.spoil(&p.info)
			require.ErrorContains(t, p.prove(nil), tc.want)
		}
	}
}

// spoil changes the schedules that an algorithm makes.
func spoil(change func(s *schedule.Schedule)) func(info *schedule.Info) {
	return func(info *schedule.Info) {
		right := info.Make
		info.Make = func(rank, size int, shape schedule.Shape) (schedule.Schedule, error) {
			s, err := right(rank, size, shape)
			change(&s)
			return s, err
		}
	}
}
