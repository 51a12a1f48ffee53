package collective

import "fmt"

// RunTable makes calls of the table of collectives on one rank, all ranks alike, and compares every
// element with the reference: every algorithm, root and count with float32 sums, and every stride-th
// of the other types and operations. It returns how many calls it made.
func RunTable(c *Comm, stride int) (calls int, err error) {
	for i, tc := range tableCases(catalog(), c.size) {
		if tc.count == 17 && i%stride != 0 {
			continue
		}
		if err := tc.run(c); err != nil {
			return calls, fmt.Errorf("rank %d of %d: %v: %w", c.rank, c.size, tc, err)
		}
		calls++
	}
	return calls, nil
}
