package verbs

import (
	"time"

	"github.com/gccl/gccl/rdma"
)

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
