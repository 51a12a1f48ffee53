package collective

import (
	"slices"

	"github.com/gccl/gccl/direct"
	"github.com/gccl/gccl/ring"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tree"
)

// Catalog lists every algorithm that a communicator may use.
func Catalog() []schedule.Info { return catalog() }

// catalog lists every algorithm. An algorithm's number on the wire is its index, so that ranks of
// one build agree; New refuses peers with another catalog.
func catalog() []schedule.Info {
	return slices.Concat(ring.Algorithms(), tree.Algorithms(), direct.Algorithms())
}
