// Package meet brings two processes of a job together over TCP: a [Caller] finds a server by any of its
// addresses, a [Door] lets in callers that belong to the job and keeps out everybody else.
package meet

import (
	"net"
	"time"
)

// keepAlive finds out within about 11 s that a host of an idle connection is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}
