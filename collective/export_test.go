package collective

import (
	"fmt"

	"github.com/gccl/gccl/tensor"
)

// RunTable makes calls of the table of collectives on one rank, all ranks alike, and compares every
// element with the reference: every plain-th call with float32 sums (all algorithms, roots and counts),
// and every other-th of the other types and operations. It returns how many calls it made.
func RunTable(c *Comm, plain, other int) (calls int, err error) {
	for i, tc := range tableCases(catalog(), c.size) {
		stride := other
		if tc.dt == tensor.Float32 && tc.op == tensor.Sum {
			stride = plain
		}
		if i%stride != 0 {
			continue
		}
		if err := tc.run(c); err != nil {
			return calls, fmt.Errorf("rank %d of %d: %v: %w", c.rank, c.size, tc, err)
		}
		calls++
	}
	return calls, nil
}

// Fetched is how many bytes the rank has read in other processes.
func Fetched(c *Comm) uint64 { return c.mesh.Fetched() }
