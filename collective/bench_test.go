package collective

import (
	"context"
	"testing"

	"github.com/gccl/gccl/tensor"
)

// What a call costs without any peer: checks, plan lookup, and one local copy.
func BenchmarkCall(b *testing.B) {
	comms, err := NewLocal(context.Background(), 1, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer comms[0].Close()
	x, y := make([]float32, 2), make([]float32, 2)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for b.Loop() {
		if err := comms[0].AllReduce(ctx, tensor.Of(y), tensor.Of(x), tensor.Sum); err != nil {
			b.Fatal(err)
		}
	}
}
