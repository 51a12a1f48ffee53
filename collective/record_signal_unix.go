//go:build unix

package collective

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// dumpOnSignal writes a dump at every SIGUSR1 from now on until Close.
func (c *Comm) dumpOnSignal() {
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	c.flight.watch.start(func(ctx context.Context) {
		defer signal.Stop(got)
		for {
			select {
			case <-got:
				c.writeDump(c.dump("signal"))
			case <-ctx.Done():
				return
			}
		}
	})
}
