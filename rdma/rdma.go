// Package rdma is the contract between links and the networks below them, in the words and with
// the semantics of verbs: devices, registered regions, endpoints (queue pairs), posted writes with
// immediate data, polled completions. Providers are the packages below it: verbs (libibverbs),
// shm (processes of one host), tcp (any network) and loopback (one process, the reference).
//
// Data moves one way only: a rank writes into memory that its peer has registered and described
// to it. Optional abilities (load/store mapping, device memory) are separate interfaces
// that a value may also have.
package rdma

import (
	"context"
	"errors"
	"time"
)

// Errors that providers wrap. They are tested with errors.Is.
var (
	// ErrPeerLost means that the peer's process or host is gone, or that its connection broke.
	ErrPeerLost = errors.New("peer lost")
	// ErrAccess means that a remote key or range was refused. The endpoint is broken afterwards. A
	// provider that completes writes before the peer has looked at them returns it from the next Post.
	ErrAccess = errors.New("remote access error")
	// ErrClosed means that the endpoint, queue, region or device was closed locally.
	ErrClosed = errors.New("closed")
	// ErrUnavailable means that a provider cannot work here (no device, no library, no permission).
	ErrUnavailable = errors.New("provider unavailable")
)

// Attr describes a device. Latency and Bandwidth are expectations for choosing algorithms, not
// promises.
type Attr struct {
	Provider   string        // "shm", "tcp", "verbs", "loopback"
	Name       string        // the device within the provider: "mlx5_0:1", "eth0", "memfd"
	Latency    time.Duration // one way, smallest message
	Bandwidth  float64       // bytes per second, one way, largest message
	MaxMessage int           // longest write, bytes
	MaxPosted  int           // writes an endpoint holds before Post takes no more
	MaxInline  int           // longest inline write, bytes; 0: no inline
	// AnyLocal says that a write's Local may be any memory, with a nil Region. It must not change or
	// be unmapped before the write completes, or the endpoint, which is a Keeper, has been told to keep it.
	AnyLocal bool
	// Autonomous says that posted writes go on by themselves. Otherwise (a software provider that
	// works in its user's time) they need Poll, here and at the peer, to make progress.
	Autonomous bool
	// Landed says that a write completes here when the peer has landed it, which takes Polls of the peer's if
	// writes are not Autonomous. Otherwise a completion may say no more than that Local is free.
	Landed bool
	// Early says that memory can show a peer's writes as they land, in any order of their bytes, before their
	// completions are polled. Otherwise the user of a region must not look at what is still on its way.
	Early bool
	// LazySignal says that before LoadStore.Signal a store with release semantics suffices
	// (internal/cpu.StoreRelease), because a peer's Bell.Arm makes such stores visible.
	LazySignal bool
}

// Device makes regions, queues and endpoints. All methods may be called from any goroutine.
type Device interface {
	Attr() Attr
	// Alloc returns zeroed, registered memory outside the Go heap, page-aligned. purpose names it
	// in accounts and messages.
	Alloc(n int, purpose string) (Region, error)
	// Register makes the caller's memory usable by the device until the region is closed. The
	// slice is pinned meanwhile. Where peers cannot reach such memory (shm), the Key of its Remote
	// is 0: it is a source of writes only.
	Register(b []byte) (Region, error)
	// NewCQ makes a completion queue for at least depth outstanding completions. If ring is not
	// nil, it is what an armed queue calls (see CQ.Arm); it must not block.
	NewCQ(depth int, ring func()) (CQ, error)
	// NewEndpoint makes an unconnected endpoint whose completions go to cq.
	NewEndpoint(cq CQ, opts EndpointOptions) (Endpoint, error)
	// Close releases everything that the device made. It never waits for a peer.
	Close() error
}

// EndpointOptions has a usable zero value.
type EndpointOptions struct {
	// RecvDepth is how many writes with immediate from the peer may be unpolled at once. The user
	// of the endpoint guarantees it, by credits. 0 means 64.
	RecvDepth int
	// OnLost, if not nil, is called at most once, from any goroutine, when the provider learns
	// that the peer is gone or the connection is broken, also when nothing is posted. It must
	// not block. The error wraps ErrPeerLost and says what was seen. It is not called after a
	// local Close.
	OnLost func(error)
}

// RemoteRegion is what a peer must know to write into a region: exchanged at bootstrap. On software
// providers Key is unguessable and every access is checked against it and Len.
type RemoteRegion struct {
	Addr uint64 // base, as the owner's device counts addresses
	Key  uint64
	Len  uint64
}

// Region is registered memory. Close invalidates it for peers; it must not be closed while
// local posts use it.
type Region interface {
	Bytes() []byte
	Remote() RemoteRegion
	Close() error
}

// Redirector is a region whose owner can have single writes land elsewhere, because the provider stores
// what arrives in its user's time: a message that is awaited then needs no copy.
type Redirector interface {
	Region
	// Redirect has the next write that begins at offset and is no longer than dst land in dst, once. A write
	// that has begun to arrive, or that comes in several pieces, still lands in the region.
	Redirect(offset int, dst []byte)
	// Redirected ends that and returns how many bytes went to dst; −1: no write did.
	Redirected(offset int) int
	// Restore ends all of it, also for a write that is half there: nothing is stored elsewhere after it. The
	// goroutine that polls calls it.
	Restore()
}

// Write asks for an RDMA WRITE of Local to Remote at Offset, followed, if HasImm, by a completion
// with Imm at the peer. All bytes are visible at the peer before that completion is, and writes of
// one endpoint land and complete in the order posted. An empty Local writes nothing, and Remote and
// Offset are not looked at then (as in verbs: InfiniBand Architecture, C9-88).
type Write struct {
	ID     uint64 // returned in the local completion
	Local  []byte // inside Region, or any memory if Inline or Region is nil
	Region Region // of Local; nil if Inline or empty, or if Attr.AnyLocal allows it
	Remote RemoteRegion
	Offset uint64
	Imm    uint32
	HasImm bool
	// Signaled asks for a local completion. Unsignaled writes complete silently with the next
	// signaled one; at least one write in MaxPosted/2 must be signaled.
	Signaled bool
	// Inline has the device take the bytes before Post returns. len(Local) ≤ Attr.MaxInline.
	Inline bool
}

// Kind tells what completed.
type Kind uint8

// The kinds of completions.
const (
	Wrote    Kind = iota + 1 // a local signaled write: its Local may be reused
	Received                 // a peer's write with immediate: its bytes are in place
)

// Completion reports a finished write, or the arrival of a peer's write with immediate.
type Completion struct {
	Kind     Kind
	Endpoint uint32 // Endpoint.ID
	ID       uint64 // Wrote: Write.ID
	Imm      uint32 // Received
	Len      int    // Received: bytes written, if the provider knows, else 0
	Err      error  // Wrote: why it failed; the endpoint is broken then
}

// CQ is a completion queue, shared by any number of endpoints. Poll may be called by one goroutine at a time.
type CQ interface {
	// Poll moves up to len(cs) completions into cs and never blocks. It also drives providers that
	// make progress in their user's time. The error is about the queue itself, not about a write.
	Poll(cs []Completion) (int, error)
	// Arm has the queue call its ring function once when a completion is there to poll, at once
	// if one already is. Arming an armed queue changes nothing.
	Arm() error
	Close() error
}

// Waiter is a queue on which its poller can sleep in one system call, which is sooner back than by
// Arm and a ring where cores are scarce. The goroutine that calls Poll calls Wait.
type Waiter interface {
	CQ
	// Wait blocks the calling thread until Poll may find something or may make progress, or until
	// about d is over. It may return for no reason.
	Wait(d time.Duration) error
}

// Attentive is a queue of which parts can be polled, where each costs something.
type Attentive interface {
	CQ
	// Attend says that the poller waits for something from an endpoint of the queue. The next Poll looks
	// there, and at what it was told likewise, and may leave the rest to a later one, but not for ever. The
	// goroutine that calls Poll calls Attend.
	Attend(e Endpoint)
}

// Endpoint is one end of a reliable, ordered connection to one peer. Post and Close may be called
// from different goroutines; Post by one at a time.
type Endpoint interface {
	// ID names the endpoint in completions, unique in its device.
	ID() uint32
	// Address is what the peer's endpoint needs for Connect. Opaque, to be exchanged.
	Address() []byte
	// Connect pairs this endpoint with the peer's. Both ends must call it, in any order. It
	// returns when writes may be posted; the peer may still be connecting.
	Connect(ctx context.Context, remote []byte) error
	// Post hands over writes in order and returns how many were taken. Fewer than len(ws) with a
	// nil error means that the queue is full: poll and try again. It keeps no reference to ws.
	Post(ws []Write) (int, error)
	// Close breaks the connection; it is local and never waits for the peer.
	Close() error
}

// Keeper is an endpoint that can give the memory of writes back before they complete.
type Keeper interface {
	Endpoint
	// Keep has the endpoint copy what it still has to send: the Locals of all writes posted so far may
	// change from then on. It is dear, for after a failure. The goroutine that posts calls it.
	Keep()
}

// DeviceMemory is a device that can make an accelerator's memory a target of peers' writes, without
// host memory between (GPUDirect RDMA). Bytes of such a region is nil, so that it is no source of this
// rank's own writes. The memory stays allocated until the region is closed.
type DeviceMemory interface {
	Device
	// RegisterDMABuf registers n bytes of a dma-buf from offset; peers address them from addr, where the
	// accelerator has them. The descriptor stays the caller's, who may close it afterwards.
	RegisterDMABuf(fd int, offset, addr uint64, n int) (Region, error)
	// RegisterPeerMemory registers n bytes at an address of an accelerator, which a kernel module
	// translates (nvidia-peermem).
	RegisterPeerMemory(addr uint64, n int) (Region, error)
}

// SparseDevice is a device that has memory to give of which much may stay unused (shm; tcp).
type SparseDevice interface {
	Device
	// AllocSparse is Alloc of memory whose pages come when they are first touched, by this process or a
	// peer. It fails if so much is not there now, which promises nothing for later.
	AllocSparse(n int, purpose string) (Region, error)
}

// LoadStore is an endpoint whose peer's regions can be mapped into this process (shm; loopback).
// Plain stores by the peer become visible through sync/atomic accesses, as between goroutines.
type LoadStore interface {
	Endpoint
	// Map returns the peer's region as local memory. The mapping is valid until the endpoint is
	// closed; mapping the same region again returns the same memory.
	Map(ctx context.Context, r RemoteRegion) ([]byte, error)
	// Signal wakes the peer's bell (see Bell) if the peer sleeps. The caller has stored, with
	// sync/atomic (but see Attr.LazySignal), what the peer waits for. When the peer is awake it costs one load.
	Signal()
}

// Populator is a LoadStore whose Map leaves it to the first use, page by page, to make memory accessible.
type Populator interface {
	LoadStore
	// Populate makes the pages of a part of a Map accessible at once. Their bytes stay as they are.
	Populate(part []byte) error
}

// Attacher is an endpoint that can also read what its peer's process has outside of its regions: cross-memory attach, a copy
// by the kernel from one process to another (shm).
type Attacher interface {
	LoadStore
	// Attach copies len(dst) bytes at an address of the peer's process to dst. The peer sees to it that they stay
	// there and do not change meanwhile. It wraps ErrPeerLost if the peer was gone before it was done, whose address
	// space may have become another's, and ErrAccess where this process may not, or nothing is there. The
	// goroutine that polls calls it.
	Attach(dst []byte, addr uint64) error
}

// BellDevice is a device whose peers wake its owner by LoadStore.Signal.
type BellDevice interface {
	Device
	Bell() Bell
}

// Bell is what a rank sleeps on when nothing is left to poll. One goroutine waits, any may ring.
// The waiter calls Arm, looks once more for work, and then either Sleeps or Disarms: no ring after Arm is lost.
type Bell interface {
	Arm()
	// Sleep returns when rung since Arm, or after about d, or for no reason. The bell is disarmed after.
	Sleep(d time.Duration)
	Disarm()
	// Ring wakes the waiter, if it is armed; else it does nothing.
	Ring()
}
