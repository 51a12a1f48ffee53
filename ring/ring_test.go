package ring_test

import (
	"testing"

	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/schedule/verify/verifytest"
)

func TestProve(t *testing.T) {
	for _, info := range ring.Algorithms() {
		t.Run(info.Name, func(t *testing.T) {
			verifytest.Prove(t, info, func(int) []schedule.Shape {
				if info.Collective.Rooted() {
					return []schedule.Shape{{}, {Pieces: 3}}
				}
				return []schedule.Shape{{}}
			})
		})
	}
}
