//go:build cuda

package collective

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gccl/gccl/internal/cuda"
	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"go.uber.org/zap"
)

// transit is the stage of one call.
type transit struct {
	c    *Comm
	plan *executor.Plan
	in   *side // the source on a device; nil: it is in host memory, or not used here
	out  *side // the result
	bufs []*pinned
	// arrived are the windows of the source that are in place, left those of the result that are on their way.
	arrived, left int
}

// side is a tensor on a device and its place in host memory.
type side struct {
	g    *gpu
	t    tensor.Tensor
	host []byte
	// marks are behind each window of the source, or behind the last that went out of the result.
	marks []*cuda.Event
	clean bool // no copy is under way
}

// stage starts the copies of a call's source and returns the call on host memory.
func (a *accel) stage(c *Comm, p *planned, call *Call) (Call, stage, error) {
	st := &transit{c: c, plan: p.plan}
	host := *call
	if err := st.open(a, call, &host); err != nil {
		st.release()
		return Call{}, nil, fmt.Errorf("%v: %w", *call, err)
	}
	return host, st, nil
}

func (st *transit) open(a *accel, call, host *Call) error {
	needDst, needSrc := st.c.needs(call)
	var err error
	if far(call.Src) {
		if host.Src = (tensor.Tensor{}); needSrc {
			if st.in, err = st.side(a, call.Src, nil); err != nil {
				return err
			}
			if host.Src, err = tensor.FromBytes(call.Src.DType(), st.in.host); err != nil {
				return err
			}
		}
	}
	if far(call.Dst) {
		if host.Dst = (tensor.Tensor{}); needDst {
			var share *side
			if st.in != nil && sharable(call) {
				share = st.in
			}
			if st.out, err = st.side(a, call.Dst, share); err != nil {
				return err
			}
			if host.Dst, err = tensor.FromBytes(call.Dst.DType(), st.out.host); err != nil {
				return err
			}
		}
		if st.c.keeps(call) {
			st.out = nil
		}
	}
	if st.in != nil {
		return st.fetch()
	}
	return nil
}

// sharable reports whether source and result may have one place in host memory.
func sharable(call *Call) bool {
	switch call.Kind {
	case AllReduce, Reduce, Broadcast, Scan, Exscan:
		return true
	}
	return tensor.Compare(call.Dst, call.Src) == tensor.Same
}

// keeps reports whether a call leaves this rank's result as it was.
func (c *Comm) keeps(call *Call) bool {
	switch call.Kind {
	case Exscan:
		return c.rank == 0
	case Broadcast:
		return call.Root == c.rank && tensor.Compare(call.Dst, call.Src) == tensor.Same
	}
	return false
}

// side checks a tensor and finds it a place.
func (st *transit) side(a *accel, t tensor.Tensor, share *side) (*side, error) {
	g, err := a.gpu(st.c, t.Device())
	if err != nil {
		return nil, err
	}
	if err := g.dev.Check(t.Addr(), t.Size()); err != nil {
		return nil, fmt.Errorf("%w: tensor on %v: %w", ErrInvalid, t.Device(), err)
	}
	if !g.told {
		if err := g.tell(st.c, t); err != nil {
			return nil, err
		}
	}
	s := &side{g: g, t: t}
	if share != nil {
		s.host = share.host
	} else {
		p, err := a.pin(g, t.Size())
		if err != nil {
			return nil, err
		}
		st.bufs = append(st.bufs, p)
		s.host = p.block.Bytes()[:t.Size():t.Size()]
	}
	return s, nil
}

// fetch queues the copies of the whole source, a mark behind each window.
func (st *transit) fetch() error {
	s := st.in
	if err := s.g.in.After(s.t.Stream(), s.g.mark); err != nil {
		return &deviceError{err}
	}
	for w := range st.plan.Windows() {
		var failed error
		st.plan.Spans(schedule.In, w, func(off, n int) {
			if failed == nil {
				failed = s.g.in.ToHost(s.host[off:off+n], s.t.Addr()+uint64(off))
			}
		})
		if failed != nil {
			return &deviceError{failed}
		}
		if err := s.markBehind(s.g.in); err != nil {
			return &deviceError{err}
		}
	}
	return nil
}

// markBehind puts a new mark behind what a stream holds.
func (s *side) markBehind(on *cuda.Stream) error {
	e, err := s.g.event()
	if err != nil {
		return err
	}
	s.marks = append(s.marks, e)
	return on.Mark(e)
}

// Begin implements executor.Stage.
func (st *transit) Begin(w int) (bool, error) {
	if st.in == nil {
		return true, nil
	}
	for ; st.arrived <= w; st.arrived++ {
		ok, err := st.in.marks[st.arrived].Done()
		if err != nil {
			return false, &deviceError{fmt.Errorf("copy from %v: %w", st.in.g.dev, err)}
		}
		if !ok {
			return false, nil
		}
	}
	st.in.clean = st.arrived == len(st.in.marks)
	return true, nil
}

// End implements executor.Stage.
func (st *transit) End(w int) error {
	st.left = w + 1
	s := st.out
	if s == nil {
		return nil
	}
	if w == 0 {
		if err := s.g.out.After(s.t.Stream(), s.g.mark); err != nil {
			return &deviceError{err}
		}
	}
	var failed error
	st.plan.Spans(schedule.Out, w, func(off, n int) {
		if failed == nil {
			failed = s.g.out.ToDevice(s.t.Addr()+uint64(off), s.host[off:off+n])
		}
	})
	if failed == nil && w == st.plan.Windows()-1 {
		failed = s.markBehind(s.g.out)
	}
	if failed != nil {
		return &deviceError{failed}
	}
	return nil
}

func (st *transit) finish(ctx context.Context) error {
	for st.left < st.plan.Windows() {
		if err := st.End(st.left); err != nil {
			return err
		}
	}
	s := st.out
	if s == nil {
		return nil
	}
	ctx, cancel := st.c.bounded(ctx)
	defer cancel()
	ctx, release := st.c.unbroken(ctx)
	defer release()
	if err := settle(ctx, s.marks[0]); err != nil {
		return &deviceError{fmt.Errorf("copy to %v: %w", s.g.dev, err)}
	}
	s.clean = true
	return nil
}

// patience bounds how long a failed call waits for copies under way.
const patience = time.Second

// release gives buffers and events back when no copy uses them any more. If a device does not end its copies, or
// does not say so, the buffers stay for good: nothing else may lie where a copy may still go.
func (st *transit) release() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var busy error
	if s := st.in; s != nil && !s.clean {
		busy = s.drain(ctx, s.g.in)
	}
	if s := st.out; s != nil && !s.clean {
		busy = errors.Join(busy, s.drain(ctx, s.g.out))
	}
	for _, s := range [...]*side{st.in, st.out} {
		if s != nil {
			s.g.events = append(s.g.events, s.marks...)
		}
	}
	if busy != nil {
		st.c.log.Warn("copies of a failed call may be under way: their host memory stays pinned", zap.Error(busy))
	} else {
		st.c.accel.idle = append(st.c.accel.idle, st.bufs...)
	}
	st.in, st.out, st.bufs = nil, nil, nil
}

// drain waits for everything that a stream holds.
func (s *side) drain(ctx context.Context, on *cuda.Stream) error {
	if err := on.Mark(s.g.mark); err != nil {
		return err
	}
	return settle(ctx, s.g.mark)
}

// copy moves src to dst, of which at least one is on a device, through host memory.
func (a *accel) copy(ctx context.Context, c *Comm, dst, src tensor.Tensor) (err error) {
	st := &transit{c: c}
	defer st.release()
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	ctx, release := c.unbroken(ctx)
	defer release()
	host := src.Bytes()
	if src.Device() != tensor.Host {
		s, err := st.side(a, src, nil)
		if err != nil {
			return err
		}
		st.in, host = s, s.host
		if err := s.carry(ctx, func() error { return s.g.in.ToHost(s.host, src.Addr()) }, s.g.in); err != nil {
			return &deviceError{fmt.Errorf("copy from %v: %w", s.g.dev, err)}
		}
	}
	if dst.Device() == tensor.Host {
		copy(dst.Bytes(), host)
		return nil
	}
	s, err := st.side(a, dst, st.in)
	if err != nil {
		return err
	}
	st.out = s
	if st.in == nil {
		copy(s.host, host)
	}
	if err := s.carry(ctx, func() error { return s.g.out.ToDevice(dst.Addr(), s.host) }, s.g.out); err != nil {
		return &deviceError{fmt.Errorf("copy to %v: %w", s.g.dev, err)}
	}
	return nil
}

// carry makes one copy on a stream and waits for it.
func (s *side) carry(ctx context.Context, queue func() error, on *cuda.Stream) error {
	err := on.After(s.t.Stream(), s.g.mark)
	if err == nil {
		err = queue()
	}
	if err == nil {
		err = s.markBehind(on)
	}
	if err == nil {
		err = settle(ctx, s.marks[0])
	}
	s.clean = err == nil
	return err
}
