//go:build !unix

package rdmatest

import "testing"

// testStopped needs a way to stop a process.
func testStopped(t *testing.T, _ Opener) { t.Skip("processes cannot be stopped here") }
