//go:build invariants || race

package invariant

// Enabled tells whether this build checks invariants.
const Enabled = true
