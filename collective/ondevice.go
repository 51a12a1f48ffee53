package collective

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/tensor"
)

// devicePaths are the values of GCCL_DEVICE_PATH.
func devicePaths() []string { return []string{"auto", "dmabuf", "peermem", "staged"} }

func checkDevicePath(v string) error {
	if v != "" && !slices.Contains(devicePaths(), v) {
		return fmt.Errorf("no path %q; there are %s", v, strings.Join(devicePaths(), ", "))
	}
	return nil
}

// deviceError is a failure of an accelerator, an ErrDevice.
type deviceError struct{ err error }

func (e *deviceError) Error() string   { return ErrDevice.Error() + ": " + e.err.Error() }
func (e *deviceError) Unwrap() []error { return []error{ErrDevice, e.err} }

// onDevice reports whether a call was given elements in an accelerator's memory. An empty tensor is
// nowhere.
func onDevice(call *Call) bool { return far(call.Dst) || far(call.Src) }

func far(t tensor.Tensor) bool { return t.Device() != tensor.Host && t.Size() > 0 }

// stage carries a call's tensors between devices and host memory, on which the call itself works: windows of
// the source come in while earlier ones are on the links, and windows of the result go out while later ones
// still are. What it holds is given back by release, which waits for copies under way.
type stage interface {
	executor.Stage
	// finish takes out what is left and waits until all of it is there.
	finish(ctx context.Context) error
	release()
}

// runStaged is runPlanned for tensors on devices. Until its stage is ready nothing is sent, and an error
// leaves the communicator as it was.
func (c *Comm) runStaged(ctx context.Context, p *planned, call *Call) error {
	host, st, err := c.accel.stage(c, p, call)
	if err != nil {
		return err
	}
	defer st.release()
	c.filled = nil
	c.fill(&c.job, p, &host)
	c.job.Args.Stage = st
	c.jobs[0] = &c.job
	if err = c.engine.Run(ctx, c.cfg.Timeout, c.jobs[:]); err == nil {
		err = st.finish(ctx)
	}
	c.job.Args.Stage = nil
	c.ended(err)
	if err != nil {
		return c.fail(call, c.numberOf(&c.job, call), err)
	}
	return nil
}

// stageAll makes the stages of a group's members, for grouping.drop to give back, also after an error.
func (c *Comm) stageAll(members []member) error {
	for i := range members {
		m := &members[i]
		if !onDevice(m.call) {
			continue
		}
		host, st, err := c.accel.stage(c, m.plan, m.call)
		if err != nil {
			return err
		}
		m.call, m.stage = &host, st
	}
	return nil
}

// copyOwn is a rank's transfer to itself.
func (c *Comm) copyOwn(ctx context.Context, dst, src tensor.Tensor) error {
	if !far(dst) && !far(src) {
		copy(dst.Bytes(), src.Bytes())
		return nil
	}
	return c.accel.copy(ctx, c, dst, src)
}
