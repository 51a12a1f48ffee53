package bootstrap

import "github.com/gccl/gccl/bootstrap/internal/meet"

// Ports is ListenPorts as numbers, the first and the last; 0 and 0: any port.
func (c *Config) Ports() (first, last int, err error) {
	if c.ListenPorts == "" {
		return 0, 0, nil
	}
	return meet.ParsePorts(c.ListenPorts)
}
