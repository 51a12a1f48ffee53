// Package invariant states what must be true if gccl itself is right. Nothing here may depend on
// what a peer or a caller sent: their mistakes are errors, not panics.
package invariant

import "fmt"

// Violation is the value that a broken invariant panics with.
type Violation struct{ Text string }

// Error returns the text, so that a recovered Violation reads well in logs.
func (v *Violation) Error() string { return "gccl: broken invariant: " + v.Text }

// Check panics with a *Violation if ok is false, but only in builds with the tag invariants or the race detector; in
// others it compiles to nothing. Arguments are evaluated in both, so guard expensive ones by
// [Enabled].
func Check(ok bool, format string, args ...any) {
	if Enabled && !ok {
		panic(&Violation{fmt.Sprintf(format, args...)})
	}
}
