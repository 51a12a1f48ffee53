// Package rdmatest is the conformance suite of package rdma's contract, for every provider:
//
//	func TestConformance(t *testing.T) {
//		rdmatest.Run(t, func(t *testing.T, n int) []rdma.Device { … })
//	}
//
// Each subtest holds one or a few sentences of the contract against fresh devices and then counts
// goroutines, file descriptors and shared mappings: closing a device gives everything back.
// RunProcesses does the same with the peer in another process, and kills it.
//
// The suite has no timing assertions. Something that has to happen is waited for until Limit, which
// is far beyond what a loaded machine needs; that something does not happen is checked after an event
// that it would have had to precede.
package rdmatest

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gccl/gccl/rdma"
)

// Limit is how long the suite waits for something that has to happen.
const Limit = 30 * time.Second

// Factory returns n open devices that can reach each other. It is called once or more in a subtest,
// with n from 1 to 4. The suite closes the devices; what else the factory needs, it gives back in
// t.Cleanup. It may skip the test if the provider is not available here.
type Factory func(t *testing.T, n int) []rdma.Device

// test is one subtest. It makes its own devices.
type test struct {
	name string
	run  func(t *testing.T, f Factory)
}

// Run runs the suite. Subtests of optional abilities are skipped if the devices lack them.
func Run(t *testing.T, f Factory) {
	warmUp(t, f)
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Device", deviceTests},
		{"Write", writeTests},
		{"Flow", flowTests},
		{"Access", accessTests},
		{"Connect", connectTests},
		{"Queue", queueTests},
		{"Lost", lostTests},
		{"LoadStore", loadStoreTests},
		{"Bell", bellTests},
		{"Traffic", trafficTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, tt := range group.tests {
				t.Run(tt.name, func(t *testing.T) {
					checkLeaks(t)
					tt.run(t, f)
				})
			}
		})
	}
}

// warmUp has the runtime and the provider open what they keep for the life of the process (the
// network poller's descriptors, a loaded library), so that the leak checks do not count it. It is no subtest,
// which -run could leave out.
func warmUp(t *testing.T, f Factory) {
	t.Helper()
	a, b := newPair(t, f, rdma.EndpointOptions{})
	a.send(t, b, []byte("warm"), 1)
	require.NoError(t, a.dev.Close())
	require.NoError(t, b.dev.Close())
}

// checkLeaks compares, after everything else that the test cleans up, what the process holds with
// what it held at the call.
func checkLeaks(t *testing.T) {
	t.Helper()
	running := goleak.IgnoreCurrent()
	fds, maps := openFiles(), sharedMappings()
	t.Cleanup(func() {
		if t.Failed() {
			return // its remains would only hide the cause
		}
		eventually(t, "every file descriptor is closed", func() bool { return openFiles() <= fds })
		eventually(t, "every shared mapping is gone", func() bool {
			runtime.GC() // a finalizer may be what unmaps
			return sharedMappings() <= maps
		})
		goleak.VerifyNone(t, running)
	})
}

// openFiles counts the process's descriptors; 0 where there is no /proc.
func openFiles() int {
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(es)
}

// sharedMappings counts the process's mappings of anonymous shared memory.
func sharedMappings() int {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0
	}
	return bytes.Count(b, []byte("memfd:"))
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Limit); !cond(); pause() {
		if time.Now().After(deadline) {
			require.FailNow(t, "did not happen", what)
		}
	}
}

// pause lets others run between two looks at something that they change.
func pause() { time.Sleep(50 * time.Microsecond) }
