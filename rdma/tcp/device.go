//go:build linux

package tcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gccl/gccl/rdma"
)

// maxInline is small because the endpoint keeps inline writes while the socket takes no more.
const maxInline = 256

var errDeviceClosed = fmt.Errorf("%w: tcp device", rdma.ErrClosed)

// device is the process's end of the network.
type device struct {
	opts      Options
	attr      rdma.Attr
	half      [8]byte // first half of the names of the endpoints
	host      hostID
	locals    []localAddr
	listeners []net.Listener
	tls       *tls.Config
	door      door

	regions regionTable

	mu        sync.Mutex
	closed    bool
	lastID    uint32
	endpoints map[name]*endpoint
	queues    map[*queue]struct{}

	ctx    context.Context // ends when the device is closed
	cancel context.CancelFunc
}

var _ rdma.Device = (*device)(nil)

// Open opens the device of this process: it listens on the chosen addresses at once. The device
// is to be closed.
func Open(opts Options) (rdma.Device, error) {
	return open(opts)
}

func open(opts Options) (*device, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ifs, err := localInterfaces()
	if err != nil {
		return nil, err
	}
	locals, err := chooseAddrs(ifs, opts.Interfaces)
	if err != nil {
		return nil, err
	}
	d := &device{
		opts:      opts,
		host:      thisHost(),
		locals:    locals,
		endpoints: map[name]*endpoint{},
		queues:    map[*queue]struct{}{},
	}
	_, _ = rand.Read(d.half[:]) // never fails, see crypto/rand
	if opts.Encrypt {
		if d.tls, err = tlsConfig(opts.TLS); err != nil {
			return nil, err
		}
	}
	if err := d.listen(); err != nil {
		return nil, err
	}
	d.attr = attributes(opts, locals)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.door.waiting = map[*net.TCPConn]uint64{}
	for _, l := range d.listeners {
		go d.accept(l)
	}
	time.AfterFunc(d.livenessPeriod(), d.watchSilence)
	return d, nil
}

func (d *device) Attr() rdma.Attr { return d.attr }

// attributes describes the device. Expectations come from the speed of the interfaces where the
// kernel knows it; those of loopback were measured.
func attributes(opts Options, locals []localAddr) rdma.Attr {
	a := rdma.Attr{
		Provider:   "tcp",
		Latency:    5 * time.Microsecond,
		Bandwidth:  4e9,
		MaxMessage: maxMessage,
		MaxPosted:  opts.MaxPosted,
		MaxInline:  maxInline,
		AnyLocal:   true,
		Landed:     opts.Sockets > 1,
	}
	var names []string
	for _, l := range locals {
		if l.loopback || slices.Contains(names, l.iface) {
			continue
		}
		names = append(names, l.iface)
		a.Latency = 15 * time.Microsecond
		b, err := os.ReadFile("/sys/class/net/" + l.iface + "/speed")
		if err != nil {
			continue
		}
		if mbit, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && mbit > 0 {
			a.Bandwidth = min(a.Bandwidth, float64(mbit)*1e6/8)
		}
	}
	a.Name = strings.Join(names, ",")
	if a.Name == "" {
		a.Name = "loopback"
	}
	return a
}

// thisHost identifies the kernel and the network namespace; zero if they cannot be told.
func thisHost() (h hostID) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return h
	}
	namespace, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return h
	}
	sum := sha256.Sum256(append(boot, namespace...))
	copy(h[:], sum[:])
	return h
}

func (d *device) NewCQ(depth int, ring func()) (rdma.CQ, error) {
	if depth <= 0 {
		return nil, fmt.Errorf("tcp: completion queue of depth %d", depth)
	}
	q, err := newQueue(d, ring)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		q.shut()
		return nil, errDeviceClosed
	}
	d.queues[q] = struct{}{}
	return q, nil
}

// NewEndpoint needs no RecvDepth: what is not polled waits in the socket.
func (d *device) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	q, ok := cq.(*queue)
	if !ok || q.dev != d {
		return nil, errors.New("tcp: the completion queue is not of this device")
	}
	if opts.RecvDepth < 0 {
		return nil, fmt.Errorf("tcp: receive depth %d", opts.RecvDepth)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errDeviceClosed
	}
	if _, open := d.queues[q]; !open {
		return nil, fmt.Errorf("%w: completion queue", rdma.ErrClosed)
	}
	d.lastID++
	e := newEndpoint(d, q, d.lastID, opts)
	d.endpoints[e.name] = e
	return e, nil
}

// lookup finds the endpoint that a stranger asks for, nil if there is none.
func (d *device) lookup(n name) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.endpoints[n]
}

func (d *device) forget(e *endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.endpoints, e.name)
}

func (d *device) snapshot() []*endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]*endpoint, 0, len(d.endpoints))
	for _, e := range d.endpoints {
		out = append(out, e)
	}
	return out
}

// Close closes endpoints, queues, regions and listeners. Connects in progress fail.
func (d *device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	queues := d.queues
	d.queues = nil
	d.mu.Unlock()
	d.cancel()
	var errs []error
	for _, l := range d.listeners {
		errs = append(errs, l.Close())
	}
	d.door.shut()
	for _, e := range d.snapshot() {
		errs = append(errs, e.Close())
	}
	for q := range queues {
		q.shut()
	}
	for _, r := range d.regions.close() {
		errs = append(errs, r.Close())
	}
	return errors.Join(errs...)
}
