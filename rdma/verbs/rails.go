package verbs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/internal/rail"
)

// maxPorts is how many ports the queue pairs of one connection can be spread over: a region has a key for each,
// and a remote key has 64 bits.
const maxPorts = 2

// Rails is a device whose connections have several data queue pairs each, the rails, in turn on its ports. Long writes
// are shared out among them, and when one fails, what it had not delivered goes by the others. See bundle.
type Rails struct {
	ports []*Device
	n     int // rails of a connection
	attr  rdma.Attr

	mu      sync.Mutex // guards what follows
	closed  bool
	bundles map[*bundle]struct{}
}

var (
	_ rdma.Device       = (*Rails)(nil)
	_ rdma.DeviceMemory = (*Rails)(nil)
)

// OpenRails opens the first active port that o.HCA admits, or the first two if o.HCA is set, for connections of n
// queue pairs, 2 to 16. Errors are Open's.
func OpenRails(o Options, n int) (*Rails, error) {
	if n < 2 || n > rail.Max {
		return nil, fmt.Errorf("verbs: %d queue pairs a connection, not within 2 to %d", n, rail.Max)
	}
	o.SendDepth = min(2*cmp.Or(o.SendDepth, defaultSendDepth)+noticeSends, 1<<16)
	o.RNRRetry = cmp.Or(o.RNRRetry, 7) // who does not poll is waited for: what is sent again takes more receives than RecvDepth
	most := 1
	if o.HCA != "" {
		most = min(n, maxPorts)
	}
	ports, err := open(o, most)
	if err != nil {
		return nil, err
	}
	r := &Rails{ports: ports, n: n, attr: ports[0].Attr(), bundles: map[*bundle]struct{}{}}
	var names []string
	r.attr.Bandwidth = 0
	for _, d := range ports {
		a := d.Attr()
		names = append(names, a.Name)
		r.attr.Bandwidth += a.Bandwidth
		r.attr.MaxMessage = min(r.attr.MaxMessage, a.MaxMessage)
		r.attr.MaxPosted = min(r.attr.MaxPosted, a.MaxPosted)
		r.attr.MaxInline = min(r.attr.MaxInline, a.MaxInline)
	}
	r.attr.Name = strings.Join(names, "+")
	r.attr.Autonomous = false // who takes over from a rail that fails must be polled
	r.attr.Early = false      // what a rail has landed may be sent again by another
	if r.attr.MaxPosted = (r.attr.MaxPosted - noticeSends) / 2; r.attr.MaxPosted < 2 {
		return nil, errors.Join(unavailable("queue pairs of %s are too short for several in a connection", r.attr.Name), r.Close())
	}
	return r, nil
}

// Attr describes the ports together.
func (r *Rails) Attr() rdma.Attr { return r.attr }

func (r *Rails) String() string { return r.attr.Name }

// port is the port of a rail.
func (r *Rails) port(i int) int { return i % len(r.ports) }

// Close is Device.Close of the ports.
func (r *Rails) Close() error {
	r.mu.Lock()
	r.closed = true
	var open []*bundle
	for b := range r.bundles {
		open = append(open, b)
	}
	r.mu.Unlock()
	for _, b := range open {
		_ = b.Close()
	}
	var errs []error
	for _, d := range r.ports {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// railsRegion is a region on every port.
type railsRegion struct {
	dev   *Rails
	parts []*region // by port
}

// Alloc returns a region of page-aligned memory outside the Go heap.
func (r *Rails) Alloc(n int, purpose string) (rdma.Region, error) {
	var first *region
	return r.each(func(d *Device) (rdma.Region, error) {
		if first != nil {
			return d.Register(first.bytes)
		}
		x, err := d.Alloc(n, purpose)
		if err == nil {
			first = x.(*region)
		}
		return x, err
	})
}

// Register pins b on every port.
func (r *Rails) Register(b []byte) (rdma.Region, error) {
	return r.each(func(d *Device) (rdma.Region, error) { return d.Register(b) })
}

// RegisterDMABuf implements rdma.DeviceMemory.
func (r *Rails) RegisterDMABuf(fd int, offset, addr uint64, n int) (rdma.Region, error) {
	return r.each(func(d *Device) (rdma.Region, error) { return d.RegisterDMABuf(fd, offset, addr, n) })
}

// RegisterPeerMemory implements rdma.DeviceMemory.
func (r *Rails) RegisterPeerMemory(addr uint64, n int) (rdma.Region, error) {
	return r.each(func(d *Device) (rdma.Region, error) { return d.RegisterPeerMemory(addr, n) })
}

// each makes a region of one for each port.
func (r *Rails) each(register func(*Device) (rdma.Region, error)) (rdma.Region, error) {
	x := &railsRegion{dev: r}
	for _, d := range r.ports {
		part, err := register(d)
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		x.parts = append(x.parts, part.(*region))
	}
	return x, nil
}

func (x *railsRegion) Bytes() []byte { return x.parts[0].Bytes() }

// Remote has the key of port i in bits 32·i to 32·i+31.
func (x *railsRegion) Remote() rdma.RemoteRegion {
	out := x.parts[0].Remote()
	for i, p := range x.parts[1:] {
		out.Key |= p.Remote().Key << (32 * (i + 1))
	}
	return out
}

// keyOf is a remote region as one of the owner's ports knows it.
func keyOf(r rdma.RemoteRegion, port int) rdma.RemoteRegion {
	r.Key = r.Key >> (32 * port) & (1<<32 - 1)
	return r
}

// Close invalidates the keys. The first port's may own the memory, so it comes last.
func (x *railsRegion) Close() error {
	var errs []error
	for i := len(x.parts) - 1; i >= 0; i-- {
		errs = append(errs, x.parts[i].Close())
	}
	return errors.Join(errs...)
}
