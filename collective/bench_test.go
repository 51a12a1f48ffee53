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

// What fingerprint and flight recorder add to a call, beside what they add to its messages (package link,
// BenchmarkDescription): the difference of the two.
func BenchmarkProtection(b *testing.B) {
	comms, err := NewLocal(context.Background(), 1, Config{})
	if err != nil {
		b.Fatal(err)
	}
	c := comms[0]
	defer c.Close()
	x := make([]float32, 2)
	call := &Call{Kind: AllReduce, Dst: tensor.Of(x), Src: tensor.Of(x), Op: tensor.Sum}
	p, err := c.ready(call)
	if err != nil {
		b.Fatal(err)
	}
	for _, bare := range []bool{true, false} {
		b.Run(map[bool]string{true: "without", false: "with"}[bare], func(b *testing.B) {
			c.cfg.bare = bare
			for b.Loop() {
				if c.fill(&c.job, p, call); !bare && !c.engine.Waited() {
					c.flight.ring.End(true)
				}
			}
		})
	}
}

// What the pulse does ten times a second, without the wakening of its goroutine.
func BenchmarkBeat(b *testing.B) {
	comms, err := NewLocal(context.Background(), 2, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer comms[0].Close()
	defer comms[1].Close()
	c := comms[0]
	c.pulse.stop()
	for b.Loop() {
		c.selfCheck()
		c.mesh.Beat()
		c.tend()
	}
}
