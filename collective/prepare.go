package collective

import (
	"context"
)

// Prepared is a call made ready: run it as often as wanted, with no checks or planning left. Its
// tensors are fixed; their contents may change between runs.
type Prepared struct {
	c    *Comm
	call Call
	plan *planned
}

// Prepare checks and plans a call. Nothing is sent; ranks need not prepare together, but must run
// the same calls in the same order, prepared or not.
func (c *Comm) Prepare(call Call) (*Prepared, error) {
	p := &Prepared{c: c, call: call}
	h := c.queue.put(func() (err error) {
		if err = c.usable(); err == nil {
			p.plan, err = c.ready(&p.call)
		}
		return err
	})
	<-h.done
	if h.err != nil {
		return nil, h.err
	}
	return p, nil
}

// Run makes the call and waits for it.
func (p *Prepared) Run(ctx context.Context) error {
	if b, ok := p.c.queue.begin(); ok {
		if p.call.Op.Custom() {
			return p.c.custom(b, func() error { return p.run(ctx) })
		}
		err := p.run(ctx)
		p.c.queue.end(b)
		return err
	}
	return p.Start(ctx).await(ctx, p.call)
}

// Start issues the call and returns at once.
func (p *Prepared) Start(ctx context.Context) *Handle {
	return p.c.queue.put(func() error { return p.run(ctx) })
}

func (p *Prepared) run(ctx context.Context) error {
	c := p.c
	if err := c.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return notBegun(p.call, err)
	}
	return c.runPlanned(ctx, p.plan, &p.call)
}
