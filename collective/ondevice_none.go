//go:build !cuda

package collective

import (
	"context"
	"fmt"

	"github.com/gccl/gccl/tensor"
)

// accel is nothing in programs without CUDA.
type accel struct{}

func (accel) close() error { return nil }

func (accel) stage(_ *Comm, _ *planned, call *Call) (Call, stage, error) {
	return Call{}, nil, fmt.Errorf("%v: %w", *call, noCUDA())
}

func (accel) copy(context.Context, *Comm, tensor.Tensor, tensor.Tensor) error { return noCUDA() }

func noCUDA() error {
	return fmt.Errorf("%w: tensors in device memory need a program built with the tag cuda: go build -tags cuda (docs/device-memory.md)", ErrUnavailable)
}
