package collective

import (
	"fmt"
	"math/bits"
)

// limit is the range of a numeric field of Config. 0 means its default and is always legal there.
type limit struct {
	name   string // of the setting
	field  string
	at     func(*Config) *int
	lo, hi int
	power  bool // a power of two
}

// limits are the ranges, for the environment and for who fills in a Config.
var limits = []limit{
	{name: "GCCL_NCHANNELS", field: "Channels", at: func(c *Config) *int { return &c.Channels }, lo: 1, hi: 63},
	{name: "GCCL_BUFFSIZE", field: "BufferBytes", at: func(c *Config) *int { return &c.BufferBytes }, lo: 128, hi: 1 << 30},
	{name: "GCCL_SLOTS", field: "Slots", at: func(c *Config) *int { return &c.Slots }, lo: 2, hi: 1 << 12, power: true},
	{name: "GCCL_LEND_MIN", field: "LendMin", at: func(c *Config) *int { return &c.LendMin }, lo: 1, hi: 1 << 40},
	{name: "GCCL_TCP_SOCKETS", field: "TCPSockets", at: func(c *Config) *int { return &c.TCPSockets }, lo: 1, hi: 16},
	{name: "GCCL_IB_QPS", field: "IBQueuePairs", at: func(c *Config) *int { return &c.IBQueuePairs }, lo: 1, hi: 16},
	{name: "GCCL_IB_TIMEOUT", field: "IBTimeout", at: func(c *Config) *int { return &c.IBTimeout }, lo: 1, hi: 31},
	{name: "GCCL_IB_TC", field: "IBTrafficClass", at: func(c *Config) *int { return &c.IBTrafficClass }, lo: 0, hi: 255},
	{name: "GCCL_IB_SL", field: "IBServiceLevel", at: func(c *Config) *int { return &c.IBServiceLevel }, lo: 0, hi: 15},
	{name: "GCCL_IB_PKEY", field: "IBPKeyIndex", at: func(c *Config) *int { return &c.IBPKeyIndex }, lo: 0, hi: 1<<16 - 1},
}

func (l *limit) check(v int) error {
	if v >= l.lo && v <= l.hi && (!l.power || bits.OnesCount(uint(v)) == 1) {
		return nil
	}
	kind := ""
	if l.power {
		kind = "a power of two "
	}
	return fmt.Errorf("%d: want %sfrom %d to %d", v, kind, l.lo, l.hi)
}

// check refuses numbers that are out of range.
func (c *Config) check() error {
	for i := range limits {
		l := &limits[i]
		if v := *l.at(c); v != 0 {
			if err := l.check(v); err != nil {
				return invalid("Config.%s (%s) is %v", l.field, l.name, err)
			}
		}
	}
	if err := checkDevicePath(c.DevicePath); err != nil {
		return invalid("Config.DevicePath (GCCL_DEVICE_PATH): %v", err)
	}
	return nil
}

// number reads a setting that has limits.
func number(name string) func(*Config, string) error {
	return func(c *Config, s string) error {
		for i := range limits {
			l := &limits[i]
			if l.name != name {
				continue
			}
			v, err := ParseBytes(s)
			if err == nil {
				err = l.check(v)
			}
			*l.at(c) = v
			return err
		}
		return fmt.Errorf("%s has no limits", name)
	}
}

// spin reads GCCL_SPIN, where 0 means none, as what is negative does in Config.Spin.
func spin(c *Config, s string) error {
	v, err := ParseBytes(s)
	switch {
	case err != nil:
		return err
	case v < 0:
		return fmt.Errorf("%d: want 0 or more", v)
	case v == 0:
		v = -1
	}
	c.Spin = v
	return nil
}
