package verbs

import (
	"time"

	"github.com/gccl/gccl/rdma"
)

// OpenAll opens all ports.
func OpenAll(o Options) ([]*Device, error) { return open(o, 1<<16) }

// ForceError puts an endpoint's queue pair into the error state, as a failing card does.
func ForceError(e rdma.Endpoint) { e.(*endpoint).toError() }

// Outlives is the longest pause of the network that every endpoint with these options outlives: its keep-alive's
// last try has not been made then. After one more it is lost.
func Outlives(o Options) time.Duration {
	o, err := o.withDefaults()
	if err != nil {
		panic(err)
	}
	t := controlTimers(&o)
	return min(time.Duration(t.retry)*ackTimeout(t.timeout), o.probeLimit())
}

// RailQP is the number of the queue pair of a connection's i-th rail.
func RailQP(e rdma.Endpoint, i int) uint32 { return e.(*bundle).subs[i].qp.Num }

// ForceRailError does ForceError to one rail.
func ForceRailError(e rdma.Endpoint, i int) { e.(*bundle).subs[i].toError() }

// StripeMin is the shortest write that is cut.
const StripeMin = stripeMin

// RailsLeft is how many rails of a connection are left.
func RailsLeft(e rdma.Endpoint) int {
	b := e.(*bundle)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live().Len()
}

// CloseAroundDevice closes an endpoint's device in the middle of the endpoint's own Close.
func CloseAroundDevice(e rdma.Endpoint) {
	ep := e.(*endpoint)
	ep.beginClose()
	_ = ep.dev.Close() // which waits in vain
	ep.finishClose()
}
