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
	if len(c.windows.list) == 0 || call.Kind >= Barrier {
		return false
	}
	for _, b := range [2][]byte{call.Src.Bytes(), call.Dst.Bytes()} {
		if len(b) > 0 && c.windows.place(b).Window == 0 {
			return false
		}
	}
	return true
}

// Alloc returns a zeroed tensor in memory that the peers on this host can read and write directly.
// All ranks must call it together with the same type and count, and must then pass such
// tensors to the same calls: ranks that mix them with others get ErrMismatch. It lives until
// Free or Close.
func (c *Comm) Alloc(ctx context.Context, dt tensor.DType, count int) (tensor.Tensor, error) {
	if !dt.Valid() || count < 0 {
		return tensor.Tensor{}, invalid("alloc of %d elements of type %v", count, dt)
	}
	var t tensor.Tensor
	h := c.queue.put(func() (err error) {
		t, err = c.alloc(ctx, dt, count)
		return err
	})
	<-h.done
	return t, h.err
}

func (c *Comm) alloc(ctx context.Context, dt tensor.DType, count int) (t tensor.Tensor, err error) {
	if err := c.usable(); err != nil {
		return t, err
	}
	n := count * dt.Size()
	dev, err := c.windowDevice()
	if err != nil {
		return t, err
	}
	region, err := dev.Alloc(max(n, 1), "tensor")
	if err != nil {
		return t, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	mine := region.Remote()
	blob := binary.LittleEndian.AppendUint64(nil, uint64(n))
	for _, v := range []uint64{mine.Addr, mine.Key, mine.Len} {
		blob = binary.LittleEndian.AppendUint64(blob, v)
	}
	all, err := selfGroup{c}.AllGather(ctx, blob)
	if err != nil {
		return t, errors.Join(fmt.Errorf("alloc: %w", err), region.Close())
	}
	c.windows.last++
	id := c.windows.last
	if err := c.setWindows(ctx, dev.Attr().Provider, id, n, all); err != nil {
		return t, errors.Join(err, region.Close())
	}
	if err := (selfGroup{c}).Barrier(ctx); err != nil {
		return t, errors.Join(fmt.Errorf("alloc: %w", err), region.Close())
	}
	c.windows.list = append(c.windows.list, window{id: id, region: region})
	return tensor.FromBytes(dt, region.Bytes()[:n])
}

// windowDevice is the device that windows are allocated on: one whose peers can map them, if any.
func (c *Comm) windowDevice() (rdma.Device, error) {
	for r := range c.size {
		if p := c.mesh.Peer(r); p != nil && p.Mapped() {
			return c.devices.get(p.Provider, &c.cfg)
		}
	}
	return c.devices.get(c.peers[c.rank].Providers[0], &c.cfg)
}

func (c *Comm) setWindows(ctx context.Context, dev string, id, n int, all [][]byte) error {
	for r, b := range all {
		if len(b) != 32 {
			return fmt.Errorf("%w: alloc: rank %d sent %d bytes", ErrInternal, r, len(b))
		}
		if theirs := binary.LittleEndian.Uint64(b); theirs != uint64(n) {
			return fmt.Errorf("%w: alloc of %d bytes here, of %d on %s", ErrMismatch, n, theirs, c.describe(r))
		}
		if p := c.mesh.Peer(r); p != nil && p.Provider == dev {
			region := rdma.RemoteRegion{Addr: binary.LittleEndian.Uint64(b[8:]), Key: binary.LittleEndian.Uint64(b[16:]), Len: binary.LittleEndian.Uint64(b[24:])}
			if err := p.SetWindow(ctx, id, region); err != nil {
				return fmt.Errorf("alloc: %w", err)
			}
		}
	}
	return nil
}

// Free releases a tensor that Alloc returned. Every rank frees its own; no call may use it on any rank any more.
func (c *Comm) Free(t tensor.Tensor) error {
	h := c.queue.put(func() error {
		for i, w := range c.windows.list {
			if off, ok := within(w.region.Bytes(), t.Bytes()); !ok || off != 0 {
				continue
			}
			c.windows.list = append(c.windows.list[:i], c.windows.list[i+1:]...)
			c.lastPlan = nil
			return w.region.Close()
		}
		return invalid("free of a tensor that Alloc did not return")
	})
	<-h.done
	return h.err
}
