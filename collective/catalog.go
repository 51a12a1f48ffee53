package collective

import (
	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/schedule"
)

// catalog lists every algorithm. An algorithm's number on the wire is its index, so that ranks of
// one build agree; Init refuses peers with another catalog.
func catalog() []schedule.Info {
	return direct.Algorithms()
}
