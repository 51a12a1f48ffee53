// Package loopback is the reference provider: several devices in one process, joined by a Network.
// Ranks are goroutines. It is what the contract in package rdma looks like with nothing else in the
// way, and where its users' mistakes are found: rules that hardware would punish later, or not at
// all, fail here at once and say which rule it was.
//
// A write happens inside Post: checked, copied, completed. So nothing is ever under way between two
// calls, the order of events is the order of calls, and there is no goroutine. Whoever waits, waits
// on a channel or a timer, so that a testing/synctest bubble sees it as durably blocked.
//
// Rules that are enforced beyond what the contract asks of a provider:
//   - more than RecvDepth unpolled writes with immediate break the connection ("credits violated");
//   - more than MaxPosted/2 unsignaled writes in a row are refused;
//   - Local must lie inside the open Region that is given for it;
//   - a completion queue that is given more completions than its depth fails ("overrun").
//
// Memory: regions lie on the Go heap, so the race detector sees every access. Payload is ordered by
// completions. In addition a write of 4 or 8 bytes to an address aligned to its length is one
// atomic store, so that a word in a region may be watched with sync/atomic.
package loopback

import (
	"fmt"
	"sync"
	"time"

	"github.com/gccl/gccl/rdma"
)

// Network joins the devices that can reach each other. Methods may be called from any goroutine.
type Network struct {
	mu        sync.Mutex
	devices   int // made so far: numbers are not reused
	endpoints map[uint64]*endpoint
}

// NewNetwork returns a network without devices. It holds nothing that needs closing.
func NewNetwork() *Network {
	return &Network{endpoints: make(map[uint64]*endpoint)}
}

// Option changes a device from its defaults.
type Option func(*Device)

// LoadStore tells whether the device's endpoints implement rdma.LoadStore. The default is true.
func LoadStore(on bool) Option { return func(d *Device) { d.loadStore = on } }

// MaxPosted sets Attr.MaxPosted, at least 2. The default is 128.
func MaxPosted(n int) Option { return func(d *Device) { d.attr.MaxPosted = max(n, 2) } }

// MaxMessage sets Attr.MaxMessage in bytes, at least 64. The default is 1 GiB.
func MaxMessage(n int) Option { return func(d *Device) { d.attr.MaxMessage = max(n, 64) } }

// MaxInline sets Attr.MaxInline in bytes. The default is 256; 0 means no inline.
func MaxInline(n int) Option { return func(d *Device) { d.attr.MaxInline = max(n, 0) } }

// Device adds a device. Devices are numbered from 0 in the order of the calls.
func (n *Network) Device(opts ...Option) *Device {
	n.mu.Lock()
	number := n.devices
	n.devices++
	n.mu.Unlock()
	d := &Device{
		net:    n,
		number: number,
		attr: rdma.Attr{
			Provider:   "loopback",
			Name:       fmt.Sprintf("lo%d", number),
			Latency:    300 * time.Nanosecond,
			Bandwidth:  8e9,
			MaxMessage: 1 << 30,
			MaxPosted:  128,
			MaxInline:  256,
		},
		loadStore: true,
		bell:      newBell(),
		regions:   make(map[uint64]*region),
		endpoints: make(map[*endpoint]struct{}),
		queues:    make(map[*queue]struct{}),
		nextAddr:  pageSize,
	}
	for _, o := range opts {
		o(d)
	}
	return d
}

// announce makes e findable under a fresh token.
func (n *Network) announce(e *endpoint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		e.token = randomKey()
		if _, taken := n.endpoints[e.token]; !taken {
			n.endpoints[e.token] = e
			return
		}
	}
}

// pair makes the endpoint that token names the peer of e. A peer that has not called Connect yet is
// claimed: only e can be its peer from now on.
func (n *Network) pair(e *endpoint, token uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.endpoints[token]
	switch {
	case !ok:
		return fmt.Errorf("%w: no endpoint has this address any more", rdma.ErrPeerLost)
	case t == e:
		return fmt.Errorf("loopback: %v: connect to itself", e)
	case e.peer != nil:
		return fmt.Errorf("loopback: %v is connected already", e)
	case t.peer != nil && t.peer != e, t.claim != nil && t.claim != e:
		return fmt.Errorf("loopback: %v: %v has another peer", e, t)
	case e.claim != nil && e.claim != t:
		return fmt.Errorf("loopback: %v: %v has connected to it, not %v", e, e.claim, t)
	}
	e.peer, t.claim = t, e
	return nil
}

// forget removes e and returns who has to hear of it, nil if nobody.
func (n *Network) forget(e *endpoint) *endpoint {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.endpoints, e.token)
	if e.peer != nil {
		return e.peer
	}
	return e.claim
}
