//go:build !unix

package collective

// dumpOnSignal does nothing where there is no SIGUSR1.
func (c *Comm) dumpOnSignal() {}
