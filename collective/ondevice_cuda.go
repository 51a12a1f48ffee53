//go:build cuda

package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/gccl/gccl/internal/cuda"
	"github.com/gccl/gccl/internal/gpudirect"
	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/tensor"
	"go.uber.org/zap"
)

// accel is a communicator's use of CUDA devices. It belongs to whoever holds the turn.
type accel struct {
	driver *cuda.Driver
	gpus   map[int]*gpu
	idle   []*pinned // kept for the next calls
}

// gpu is a device with the streams of its copies, one each way, because devices copy both ways at once.
type gpu struct {
	dev     *cuda.Device
	in, out *cuda.Stream
	mark    *cuda.Event // between a tensor's stream and ours
	events  []*cuda.Event
	told    bool // of its paths
}

// pinned is page-locked host memory.
type pinned struct {
	block *hostmem.Block
	dev   *cuda.Device // whose context pinned it, for all
}

// idleMost is how many buffers stay pinned for the next calls: those of two calls.
const idleMost = 4

// pinStep is what buffers are rounded up to, so that tensors of nearly one size share them: a huge page.
const pinStep = 2 << 20

// gpu returns the device of a tensor; the driver is opened for the first.
func (a *accel) gpu(c *Comm, d tensor.Device) (_ *gpu, err error) {
	if a.driver == nil {
		if a.driver, err = cuda.Open(c.cfg.CUDALibrary); err != nil {
			return nil, fmt.Errorf("%w: tensor on %v: %w", ErrUnavailable, d, err)
		}
		a.gpus = map[int]*gpu{}
	}
	if g := a.gpus[d.Ordinal()]; g != nil {
		return g, nil
	}
	g := &gpu{}
	if err := g.open(a.driver, d.Ordinal()); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrUnavailable, err), g.close())
	}
	a.gpus[d.Ordinal()] = g
	return g, nil
}

func (g *gpu) open(d *cuda.Driver, ordinal int) (err error) {
	if g.dev, err = d.Device(ordinal); err != nil {
		return err
	}
	if g.in, err = g.dev.NewStream(); err != nil {
		return err
	}
	if g.out, err = g.dev.NewStream(); err != nil {
		return err
	}
	g.mark, err = g.dev.NewEvent()
	return err
}

func (g *gpu) close() error {
	var errs []error
	for _, s := range [...]*cuda.Stream{g.in, g.out} {
		if s != nil {
			errs = append(errs, s.Destroy())
		}
	}
	if g.mark != nil {
		g.events = append(g.events, g.mark)
	}
	for _, e := range g.events {
		errs = append(errs, e.Destroy())
	}
	return errors.Join(errs...)
}

// tell finds out, with the first tensor on a device, how the network card in use reaches it, and logs that
// beside the path of collectives. GCCL_DEVICE_PATH=dmabuf or peermem has to be possible.
func (g *gpu) tell(c *Comm, t tensor.Tensor) error {
	want := cmp.Or(c.cfg.DevicePath, gpudirect.Auto)
	forced := want == gpudirect.DMABuf || want == gpudirect.PeerMem
	fields := []zap.Field{zap.Stringer("device", g.dev), zap.String("collectives", gpudirect.Staged), zap.String("wanted", want)}
	card := c.card()
	switch {
	case want == gpudirect.Staged:
	case card == nil && forced:
		return fmt.Errorf("%w: GCCL_DEVICE_PATH=%s: no network card that takes device memory is in use (providers: verbs)", ErrUnavailable, want)
	case card == nil:
		fields = append(fields, zap.String("card", "none"))
	default:
		region, path, err := gpudirect.Register(card, g.dev, t.Addr(), t.Size(), want)
		if region != nil {
			err = region.Close()
		}
		if path == gpudirect.Staged && forced {
			return fmt.Errorf("%w: GCCL_DEVICE_PATH=%s: %w", ErrUnavailable, want, err)
		}
		fields = append(fields, zap.String("card", card.Attr().Name), zap.String("reached", path))
		if err != nil {
			fields = append(fields, zap.Error(err))
		}
	}
	g.told = true
	c.log.Info("device memory", fields...)
	return nil
}

// card is the first device in use that takes accelerators' memory, or nil.
func (c *Comm) card() rdma.DeviceMemory {
	for _, d := range c.devices.list {
		if m, ok := d.(rdma.DeviceMemory); ok {
			return m
		}
	}
	return nil
}

// event takes an event.
func (g *gpu) event() (*cuda.Event, error) {
	if n := len(g.events); n > 0 {
		e := g.events[n-1]
		g.events = g.events[:n-1]
		return e, nil
	}
	return g.dev.NewEvent()
}

// pin returns a buffer of at least n bytes: the shortest idle one that is long enough, or a new one.
func (a *accel) pin(g *gpu, n int) (*pinned, error) {
	best := -1
	for i, p := range a.idle {
		if size := len(p.block.Bytes()); size >= n && (best < 0 || size < len(a.idle[best].block.Bytes())) {
			best = i
		}
	}
	if best >= 0 {
		p := a.idle[best]
		a.idle = append(a.idle[:best], a.idle[best+1:]...)
		return p, nil
	}
	if err := a.trim(idleMost - 1); err != nil { // short ones do not pile up
		return nil, err
	}
	if n > pinStep {
		n = (n + pinStep - 1) / pinStep * pinStep
	}
	block, err := hostmem.Alloc(n, "device staging")
	if err == nil {
		if err = g.dev.Pin(block.Bytes()); err != nil {
			err = errors.Join(err, block.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: host memory to stage a tensor of %v through: %w", ErrUnavailable, g.dev, err)
	}
	return &pinned{block, g.dev}, nil
}

// trim frees the shortest idle buffers until no more than n are left.
func (a *accel) trim(n int) error {
	var errs []error
	for len(a.idle) > n {
		least := 0
		for i, p := range a.idle {
			if len(p.block.Bytes()) < len(a.idle[least].block.Bytes()) {
				least = i
			}
		}
		errs = append(errs, a.idle[least].close())
		a.idle = append(a.idle[:least], a.idle[least+1:]...)
	}
	return errors.Join(errs...)
}

// close gives the memory back unless the driver still has it.
func (p *pinned) close() error {
	if err := p.dev.Unpin(p.block.Bytes()); err != nil {
		return err
	}
	return p.block.Close()
}

func (a *accel) close() error {
	if a.driver == nil {
		return nil
	}
	errs := []error{a.trim(0)}
	for _, g := range a.gpus {
		errs = append(errs, g.close())
	}
	errs = append(errs, a.driver.Close())
	a.driver = nil
	return errors.Join(errs...)
}

// copyPolls is how often an event is asked for before its waiter sleeps between questions.
const copyPolls = 1000

// settle waits until what is before a mark has run.
func settle(ctx context.Context, e *cuda.Event) error {
	var tick *time.Ticker
	for i := 0; ; i++ {
		if ok, err := e.Done(); ok || err != nil {
			return err
		}
		if i < copyPolls {
			runtime.Gosched()
			continue
		}
		if tick == nil {
			tick = time.NewTicker(100 * time.Microsecond)
			defer tick.Stop()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
