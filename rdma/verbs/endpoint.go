package verbs

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// The kinds of work requests on a data queue pair. A request's 64-bit ID is the endpoint's ID, two
// bits of kind and, for writes, the lower 30 bits of their sequence number: after an error, the ID is
// all that a completion still has.
const (
	kindWrite = 0
	kindRecv  = 1

	seqBits = 30
	seqMask = 1<<seqBits - 1
)

func packID(id uint32, kind uint32, seq uint64) uint64 {
	return uint64(id)<<32 | uint64(kind)<<seqBits | seq&seqMask
}

func unpackID(x uint64) (id uint32, kind uint32) { return uint32(x >> 32), uint32(x) >> seqBits }

// state is an endpoint's life; steps may be left out, the order is kept.
type state = uint32

const (
	fresh   state = iota
	waiting       // connected here; the peer may not be yet: writes are kept in pending
	ready         // the peer answered
	broken        // cause says why
	closed
)

const recvBatch = 16 // receives are posted again in chains of this length

// endpoint is one end of a connection.
//
// The goroutine that posts owns posted, silent and send; the one that polls owns consumed. Between
// them: the poster writes kept[seq] and then tail; the poller reads tail and then kept, and writes
// head, the first sequence number whose place is not free again.
type endpoint struct {
	dev   *Device
	id    uint32
	cq    *queue
	opts  rdma.EndpointOptions
	guard *guard

	bundle *bundle // whose rail it is, or nil
	rail   int

	qp      *ibv.QP
	send    *ibv.Sender
	recv    *ibv.Receiver
	psn     uint32
	load    int // completions that it may cause
	control *control

	modify sync.Mutex // one ibv_modify_qp at a time; guards connecting
	peer   atomic.Pointer[string]

	state atomic.Uint32 // written under life
	life  sync.Mutex
	cause error // why it is broken; guarded by life

	pend    sync.Mutex // held while pending writes are kept or handed over
	pending []rdma.Write
	quiet   int // unsignaled ones at the end of pending

	posted uint64
	silent int         // unsignaled writes since the last signaled one
	kept   []keptWrite // MaxPosted, and as many more as make a power of two
	tail   atomic.Uint64
	head   atomic.Uint64

	consumed int // receives used since the last chain
}

// keptWrite is what must be known of a posted write when it completes.
type keptWrite struct {
	id       uint64
	signaled bool
}

// sendBatch is how many writes one call of ibv_post_send hands over.
const sendBatch = 32

// NewEndpoint makes the queue pairs and posts the receives.
func (d *Device) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	q, ok := cq.(*queue)
	if !ok || q.dev != d {
		return nil, fmt.Errorf("verbs: %v: the completion queue is not of this device", d)
	}
	e, err := d.newEndpoint(q, opts, nil, 0)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// newEndpoint makes an endpoint, which may be a rail of a bundle.
func (d *Device) newEndpoint(q *queue, opts rdma.EndpointOptions, b *bundle, rail int) (*endpoint, error) {
	if opts.RecvDepth == 0 {
		opts.RecvDepth = defaultRecvDepth
	}
	if most := int(d.limits.MaxQPWR) - recvBatch; opts.RecvDepth < 0 || opts.RecvDepth > most {
		return nil, fmt.Errorf("verbs: %v: receive depth %d, not within 1 to %d", d, opts.RecvDepth, most)
	}
	if !q.guard.enter() { // left when the endpoint is destroyed
		return nil, fmt.Errorf("verbs: %w: completion queue", rdma.ErrClosed)
	}
	e := &endpoint{dev: d, cq: q, opts: opts, bundle: b, rail: rail, psn: randomPSN(), kept: make([]keptWrite, 1<<bits.Len(uint(d.attr.MaxPosted-1)))}
	e.guard = newGuard(e.destroy)
	if err := e.build(); err != nil {
		if e.beginClose() {
			e.finishClose()
		}
		return nil, fmt.Errorf("verbs: new endpoint on %v: %w", d, err)
	}
	return e, nil
}

// build makes the endpoint. Device.Close may find it half made, in the table, and close it.
func (e *endpoint) build() (err error) {
	e.guard.enter()
	defer e.guard.leave()
	e.modify.Lock()
	defer e.modify.Unlock()
	d := e.dev
	// One chain more than RecvDepth: up to a chain less one are polled and not yet posted again.
	recvs := (e.opts.RecvDepth + recvBatch + recvBatch - 1) / recvBatch * recvBatch
	load := d.attr.MaxPosted + recvs
	if err = e.cq.room.reserve(load); err != nil {
		return err
	}
	e.load = load
	if e.qp, err = d.pd.NewQP(e.cq.cq, d.capacity(recvs, d.attr.MaxInline)); err != nil {
		return explain(err, load*256)
	}
	if e.send, err = e.qp.NewSender(min(sendBatch, d.attr.MaxPosted), d.attr.MaxInline); err != nil {
		return err
	}
	if e.control, err = d.keeper.newControl(e); err != nil {
		return err
	}
	// Publish it before a receive is posted: its ID goes into the receives.
	d.mu.Lock()
	if d.closed {
		err = d.closedError()
	} else {
		err = d.table.add(e)
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	if e.recv, err = e.qp.NewReceiver(recvBatch, packID(e.id, kindRecv, 0)); err != nil {
		return err
	}
	if err = e.qp.Modify(d.initAttr(), initMask); err != nil {
		return err
	}
	for range recvs / recvBatch {
		if err = e.recv.Post(); err != nil {
			return err
		}
	}
	return nil
}

func (e *endpoint) ID() uint32 { return e.id }

func (e *endpoint) String() string {
	peer := "unconnected"
	if p := e.peer.Load(); p != nil {
		peer = "to " + *p
	}
	return fmt.Sprintf("endpoint %#x on %v (QP %d, %s)", e.id, e.dev, e.qp.Num, peer)
}

func (e *endpoint) Address() []byte {
	d := e.dev
	a := address{
		link: d.link, mtu: d.mtu, lid: d.lid, data: queueAddress{e.qp.Num, e.psn}, control: e.control.address(),
		gids: d.gids, name: d.attr.Name,
	}
	return a.encode()
}

// Connect brings both queue pairs to RTS. The kernel may have to ask for the peer's hardware address;
// if ctx ends meanwhile, Connect returns and the endpoint must be closed.
func (e *endpoint) Connect(ctx context.Context, remote []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a, err := decodeAddress(remote)
	if err != nil {
		return err
	}
	if !e.guard.enter() {
		return e.closedError()
	}
	done := make(chan error, 1)
	go func() {
		defer e.guard.leave()
		done <- e.connect(a)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("verbs: %v: connect to %s: %w", e, a.name, ctx.Err())
	}
}

func (e *endpoint) connect(a *address) error {
	e.modify.Lock()
	defer e.modify.Unlock()
	if s := e.state.Load(); s != fresh {
		if s == waiting || s == ready {
			return fmt.Errorf("verbs: %v is connected already", e)
		}
		return e.failure()
	}
	path, err := e.dev.path(a)
	if err != nil {
		return fmt.Errorf("verbs: %v: connect to %s: %w", e, a.name, err)
	}
	name := fmt.Sprintf("%s QP %d", a.name, a.data.qpn)
	if path.gid.index >= 0 {
		name = fmt.Sprintf("%s at %v", name, path.peer.ip())
	}
	e.peer.Store(&name)
	if err = path.connect(e.qp, queueAddress{e.qp.Num, e.psn}, a.data, dataTimers(&e.dev.opts)); err != nil {
		return fmt.Errorf("verbs: %v: %w", e, err)
	}
	e.life.Lock()
	if e.state.Load() == fresh {
		e.state.Store(waiting)
	}
	e.life.Unlock()
	if err = e.control.start(path, a.control); err != nil {
		return err
	}
	return e.failure()
}

// peerReady hands over the writes that waited for the peer. Called by the keeper.
func (e *endpoint) peerReady() {
	if !e.guard.enter() {
		return
	}
	defer e.guard.leave()
	e.pend.Lock()
	defer e.pend.Unlock()
	e.flushPending()
	e.life.Lock()
	if e.state.Load() == waiting {
		e.state.Store(ready)
	}
	e.life.Unlock()
}

// flushPending posts what waited. On a broken endpoint its requests complete as flushed, so that
// their user hears of them. pend is held.
func (e *endpoint) flushPending() {
	if len(e.pending) == 0 {
		return
	}
	ws := e.pending
	e.pending = nil
	if n, err := e.post(ws); err != nil || n < len(ws) {
		e.lost(fmt.Errorf("verbs: %v: %d of %d writes that waited for the peer were not taken (%v): %w", e, len(ws)-n, len(ws), err, rdma.ErrPeerLost))
	}
}

// failure says why the endpoint cannot be used, nil if it can.
func (e *endpoint) failure() error {
	switch e.state.Load() {
	case waiting, ready:
		return nil
	case fresh:
		return fmt.Errorf("verbs: %v is not connected", e)
	case closed:
		return e.closedError()
	}
	e.life.Lock()
	defer e.life.Unlock()
	return e.cause
}

func (e *endpoint) closedError() error { return fmt.Errorf("verbs: %w: %v", rdma.ErrClosed, e) }

// lost breaks the endpoint: what is posted is flushed, the peer is told, and the user too, if the
// endpoint was connected. Only the first cause counts. It may be called from any goroutine.
func (e *endpoint) lost(cause error) {
	e.life.Lock()
	before := e.state.Load()
	if before < broken {
		e.cause = cause
		e.state.Store(broken)
	}
	e.life.Unlock()
	if before >= broken {
		return
	}
	e.dev.opts.Logger.Sugar().Warnf("verbs: connection lost: %v", cause)
	// Breaking the queue pair may take a system call, and OnLost is foreign code: neither belongs into
	// a Poll or the keeper.
	go func() {
		if e.guard.enter() {
			e.control.tell(imBroken)
			e.toError()
			e.pend.Lock()
			e.flushPending()
			e.pend.Unlock()
			e.guard.leave()
		}
		if before != fresh && e.opts.OnLost != nil && e.state.Load() != closed {
			e.opts.OnLost(cause)
		}
	}()
}

// toError has everything posted flushed.
func (e *endpoint) toError() {
	e.modify.Lock()
	defer e.modify.Unlock()
	if err := e.qp.Modify(ibv.QPAttr{State: ibv.QPErr}, ibv.MaskState); err != nil {
		e.dev.opts.Logger.Sugar().Errorf("verbs: %v: %v", e, err)
	}
}

// Close breaks the connection: no byte moves when it has returned. It waits for a Connect that is inside the kernel, which may ask
// the network for the peer's hardware address, a second for each of the two queue pairs at most (rdma_addr_find_l2_eth_by_grh in
// the kernel's drivers/infiniband/core/addr.c), and for nothing else. The peer is told by a message that nobody waits for.
func (e *endpoint) Close() error {
	if !e.beginClose() {
		return nil
	}
	if e.guard.enter() {
		e.toError() // no byte moves from here on, even while a Post is inside the library
		e.guard.leave()
	}
	e.finishClose()
	return nil
}

// beginClose reports whether nobody has closed the endpoint before.
func (e *endpoint) beginClose() bool {
	e.life.Lock()
	defer e.life.Unlock()
	return e.state.Swap(closed) != closed
}

// finishClose undoes what build made, also half of it.
func (e *endpoint) finishClose() {
	if e.control != nil {
		e.control.close()
	}
	if e.id != 0 {
		e.dev.table.remove(e)
	}
	e.guard.close()
}

// destroy frees what build made, also half of it, when nobody uses it any more.
func (e *endpoint) destroy() {
	if e.qp != nil {
		if err := e.qp.Destroy(); err != nil {
			e.dev.opts.Logger.Sugar().Errorf("verbs: endpoint %#x: %v", e.id, err)
		}
	}
	if e.send != nil {
		e.send.Free()
	}
	if e.recv != nil {
		e.recv.Free()
	}
	e.cq.room.release(e.load)
	e.cq.guard.leave()
}
