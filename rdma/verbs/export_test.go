package verbs

import "github.com/gccl/gccl/rdma"

// ForceError puts an endpoint's queue pair into the error state, as a failing card does.
func ForceError(e rdma.Endpoint) { e.(*endpoint).toError() }
