//go:build invariants

package invariant

import "math/rand/v2"

// Enabled tells whether this build checks invariants.
const Enabled = true

// Sometimes is true for about percent of the calls: rare paths that are right but seldom needed
// are taken more often in the builds that tests run. In other builds it is always false.
func Sometimes(percent int) bool { return rand.IntN(100) < percent }
