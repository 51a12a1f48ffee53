package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
)

// windows are the registered buffers of a communicator that all ranks have mapped.
type windows struct {
	list []window
	last int // latest number given; all ranks allocate together, so they count alike
}

type window struct {
	id     int // from 1 up, the same on every rank; link.Peer.SetWindow
	region rdma.Region
	dev    string
	theirs []rdma.RemoteRegion // by rank, on that device
}

// fetch maps a peer's part of a window, if it is on the device that reaches the peer and can be mapped. show then makes it known to
// this rank.
func (w *window) fetch(ctx context.Context, p *link.Peer) (show func(), err error) {
	if p.Provider != w.dev {
		return func() {}, nil
	}
	b, err := p.MapWindow(ctx, w.theirs[p.Rank])
	return func() { p.SetWindow(w.id, w.region, w.theirs[p.Rank], b) }, err
}

// place names memory inside a window, or returns the zero Place.
func (w *windows) place(b []byte) link.Place {
	for i := range w.list {
		if off, ok := within(w.list[i].region.Bytes(), b); ok {
			return link.Place{Window: uint64(w.list[i].id), Offset: uint64(off)}
		}
	}
	return link.Place{}
}

func (w *windows) close() error {
	var errs []error
	for _, win := range w.list {
		errs = append(errs, win.region.Close())
	}
	w.list = nil
	return errors.Join(errs...)
}

// registered reports whether the call's buffers all lie in windows. Ranks must agree on it: it
// chooses the algorithm, and is part of the fingerprint.
func (c *Comm) registered(call *Call) bool {
	if len(c.windows.list) == 0 || call.Kind >= Barrier || onDevice(call) {
		return false
	}
	for _, b := range [2][]byte{call.Src.Bytes(), call.Dst.Bytes()} {
		if len(b) > 0 && c.windows.place(b).Window == 0 {
			return false
		}
	}
	return true
}

// maxAlloc bounds a tensor of Alloc, in bytes.
const maxAlloc = 1 << 46

// Alloc returns a zeroed tensor in memory that the peers on this host can read and write directly; where all peers are
// reached over verbs, long transfers between such tensors go straight from one to the other.
// Over tcp nothing is gained. All ranks must call it together with the same type and count, and must then pass such
// tensors to a call on all ranks or on none (else ErrMismatch). It lives until
// Free or Close. If a rank has no memory, asks for another size (ErrMismatch), or cannot map the others' before its ctx ends or
// Config.Timeout has passed, Alloc fails on all ranks alike, and the communicator is as before. A rank that does not come to Alloc, or is
// lost or silent meanwhile, breaks it, as in any call.
func (c *Comm) Alloc(ctx context.Context, dt tensor.DType, count int) (t tensor.Tensor, err error) {
	if !dt.Valid() || count < 0 || count > maxAlloc/max(1, dt.Size()) {
		return t, invalid("alloc of %d elements of type %v", count, dt)
	}
	err = c.operate(ctx, "alloc", func() (err error) {
		t, err = c.alloc(ctx, dt, count)
		return err
	})
	return t, err
}

func (c *Comm) alloc(ctx context.Context, dt tensor.DType, count int) (t tensor.Tensor, err error) {
	if err := c.usable(); err != nil {
		return t, err
	}
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	n := count * dt.Size()
	dev, err := c.windowDevice()
	if err != nil {
		return t, err
	}
	win := window{dev: dev.Attr().Provider, theirs: make([]rdma.RemoteRegion, c.size)}
	var blob []byte // the others learn from an empty one that there is no memory
	var failed error
	if win.region, failed = dev.Alloc(max(n, 1), "tensor"); failed == nil {
		blob = win.offer(n)
	} else {
		failed = fmt.Errorf("allocate %d bytes: %w", n, failed)
	}
	all, err := selfGroup{c: c}.AllGather(ctx, blob)
	if err == nil {
		c.windows.last++
		win.id = c.windows.last
		if failed == nil {
			failed = c.attended(ctx, "alloc", func(ctx context.Context) error { return c.setWindow(ctx, &win, n, all) })
		}
		err = c.allWell(ctx, failed)
	}
	switch {
	case err != nil:
		return t, errors.Join(fmt.Errorf("alloc: %w", err), c.drop(&win))
	case n == 0:
		t, _ = tensor.FromBytes(dt, nil)
		return t, c.drop(&win) // nothing to keep
	}
	c.windows.list = append(c.windows.list, win)
	c.forget() // whose tensors were in no window
	return tensor.FromBytes(dt, win.region.Bytes()[:n])
}

// offer is what the other ranks must know of this rank's part.
func (w *window) offer(n int) []byte {
	r := w.region.Remote()
	b := binary.LittleEndian.AppendUint64(nil, uint64(n))
	for _, v := range []uint64{r.Addr, r.Key, r.Len} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// drop gives up this rank's part of a window, and its view of the others'.
func (c *Comm) drop(w *window) error {
	for r := range c.size {
		if p := c.mesh.Peer(r); p != nil {
			p.DropWindow(w.id)
		}
	}
	if w.region == nil {
		return nil
	}
	return w.region.Close()
}

// allWell tells the other ranks whether this one got on, and returns the first rank's failure.
func (c *Comm) allWell(ctx context.Context, failed error) error {
	var mine []byte
	if failed != nil {
		mine = []byte(failed.Error())
	}
	all, err := selfGroup{c: c, begun: true}.AllGather(ctx, mine)
	if failed != nil || err != nil {
		return both(failed, err)
	}
	for r, b := range all {
		if len(b) > 0 {
			return fmt.Errorf("%s: %s", c.describe(r), b)
		}
	}
	return nil
}

// windowDevice is the device that windows are allocated on: one whose peers can map them, if any.
func (c *Comm) windowDevice() (rdma.Device, error) {
	for r := range c.size {
		if p := c.mesh.Peer(r); p != nil && p.Mapped() {
			return c.devices.get(p.Provider, &c.cfg)
		}
		if name, _ := c.providerFor(r); c.pairs != nil && r != c.rank && (name == "shm" || name == "loopback") {
			return c.devices.get(name, &c.cfg)
		}
	}
	return c.devices.get(c.peers[c.rank].Providers[0], &c.cfg)
}

func (c *Comm) setWindow(ctx context.Context, w *window, n int, all [][]byte) error {
	for r, b := range all {
		if len(b) == 0 {
			return fmt.Errorf("%s could not allocate its part", c.describe(r))
		}
		if len(b) != 32 {
			return fmt.Errorf("%w: rank %d sent %d bytes", ErrInternal, r, len(b))
		}
		if theirs := binary.LittleEndian.Uint64(b); theirs != uint64(n) {
			return fmt.Errorf("%w: alloc of %d bytes here, of %d on %s", ErrMismatch, n, theirs, c.describe(r))
		}
		w.theirs[r] = rdma.RemoteRegion{Addr: binary.LittleEndian.Uint64(b[8:]), Key: binary.LittleEndian.Uint64(b[16:]), Len: binary.LittleEndian.Uint64(b[24:])}
		if p := c.mesh.Peer(r); p != nil { // others when they join
			show, err := w.fetch(ctx, p)
			if err != nil {
				return err
			}
			c.outside.Lock()
			show()
			c.outside.Unlock()
		}
	}
	return nil
}

// Free releases a tensor that Alloc returned. What peers have mapped of it they keep until they close
// the communicator: allocate once and reuse. Every rank frees its own; no call may use it on any rank any more.
func (c *Comm) Free(t tensor.Tensor) error {
	if t.DType().Valid() && t.Len() == 0 {
		return nil
	}
	h := c.queue.put(func() error {
		for i, w := range c.windows.list {
			if off, ok := within(w.region.Bytes(), t.Bytes()); !ok || off != 0 {
				continue
			}
			c.windows.list = append(c.windows.list[:i], c.windows.list[i+1:]...)
			c.forget()
			return c.drop(&w)
		}
		return invalid("free of a tensor that Alloc did not return")
	})
	<-h.done
	return h.err
}
