package faulty

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
)

// Control is a test's hand on a device. Methods may be called from any goroutine.
type Control struct{ d *device }

// Die ends the device now, as the fault Die does.
func (c *Control) Die() { c.d.die("by its test") }

// Break breaks the connection of endpoint n now, numbered as in Event, as the fault Break does.
func (c *Control) Break(n int) {
	c.d.mu.Lock()
	var e *endpoint
	if n >= 1 && n <= len(c.d.endpoints) {
		e = c.d.endpoints[n-1]
	}
	c.d.mu.Unlock()
	if e != nil {
		e.breakNow("by its test")
	}
}

// Injected returns the faults that the plan has caused so far.
func (c *Control) Injected() []Event {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return slices.Clone(c.d.injected)
}

// Wrap returns a device that works on dev and fails by plan. It has a bell if dev has one, and its
// endpoints map memory if those of dev do. Closing it closes dev.
func Wrap(dev rdma.Device, plan Plan) (rdma.Device, *Control) {
	d := &device{Device: dev, plan: plan}
	if bd, ok := dev.(rdma.BellDevice); ok {
		d.bell = bd.Bell()
		return belled{d}, &Control{d}
	}
	return d, &Control{d}
}

// device passes regions and attributes through.
type device struct {
	rdma.Device
	plan Plan
	bell rdma.Bell // nil if there is none
	dead atomic.Pointer[error]

	mu        sync.Mutex
	queues    []*queue
	endpoints []*endpoint // by number-1
	injected  []Event
}

type belled struct{ *device }

func (b belled) Bell() rdma.Bell { return b.bell }

func (d *device) NewCQ(depth int, ring func()) (rdma.CQ, error) {
	q := &queue{dev: d, ring: ring, endpoints: make(map[uint32]*endpoint)}
	innerRing := q.fire
	if ring == nil {
		innerRing = nil
	}
	var err error
	if q.inner, err = d.Device.NewCQ(depth, innerRing); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues = append(d.queues, q)
	q.number = len(d.queues)
	return q, nil
}

func (d *device) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	q, ok := cq.(*queue)
	if !ok || q.dev != d {
		return nil, errors.New("faulty: the completion queue is not of this device")
	}
	e := &endpoint{dev: d, cq: q, onLost: opts.OnLost, slots: make([]slot, d.Attr().MaxPosted)}
	opts.OnLost = e.innerLost
	var err error
	if e.inner, err = d.Device.NewEndpoint(q.inner, opts); err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.endpoints = append(d.endpoints, e)
	e.number = len(d.endpoints)
	d.mu.Unlock()
	q.lock()
	q.endpoints[e.inner.ID()] = e
	q.unlock()
	if ls, ok := e.inner.(rdma.LoadStore); ok && !d.plan.HideLoadStore {
		return mapped{e, ls}, nil
	}
	return e, nil
}

func (d *device) Close() error {
	d.stop(fmt.Errorf("%w: faulty device", rdma.ErrClosed))
	return d.Device.Close()
}

// die closes the inner device and wakes whoever waits here.
func (d *device) die(why string) {
	if d.stop(fmt.Errorf("%w: faulty: the device died %s", rdma.ErrClosed, why)) {
		_ = d.Device.Close()
		d.mu.Lock()
		queues := slices.Clone(d.queues)
		d.mu.Unlock()
		for _, q := range queues {
			q.fire()
		}
		if d.bell != nil {
			d.bell.Ring()
		}
	}
}

// stop has everything fail with err from now on; it tells whether this is the first call.
func (d *device) stop(err error) bool {
	if !d.dead.CompareAndSwap(nil, &err) {
		return false
	}
	d.mu.Lock()
	endpoints := slices.Clone(d.endpoints)
	d.mu.Unlock()
	for _, e := range endpoints {
		e.retire()
	}
	return true
}

// failure says why the device cannot be used any more, nil if it can.
func (d *device) failure() error {
	if p := d.dead.Load(); p != nil {
		return *p
	}
	return nil
}

func (d *device) record(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.injected = append(d.injected, e)
}
