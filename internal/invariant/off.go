//go:build !invariants

package invariant

// Enabled tells whether this build checks invariants.
const Enabled = false

// Sometimes is true for about percent of the calls: rare paths that are right but seldom needed
// are taken more often in the builds that tests run. In other builds it is always false.
func Sometimes(percent int) bool { return false }
