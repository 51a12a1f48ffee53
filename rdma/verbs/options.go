package verbs

import (
	"cmp"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// Options has a usable zero value.
type Options struct {
	// HCA selects devices and ports in the syntax of NCCL_IB_HCA: a comma-separated list of device
	// name prefixes, each with an optional port, as "mlx5_0:1,mlx5_2". A leading "=" makes the names
	// exact, a leading "^" excludes them, "^=" both. Empty: every device.
	HCA string
	// GIDIndex fixes the entry of the port's GID table. Nil: chosen by RoCE version, address family and
	// the peer's addresses.
	GIDIndex *int
	// RoCEVersion is 2 (the default, 0) or 1.
	RoCEVersion int
	// AddrFamily is 4 or 6 and restricts the GIDs; 0 takes both and prefers 4.
	AddrFamily int
	// PKeyIndex is the index in the port's partition key table.
	PKeyIndex uint16
	// ServiceLevel (0 to 15) is the InfiniBand service level; TrafficClass the byte that RoCE v2 puts
	// into the IP header (DSCP in its upper six bits).
	ServiceLevel, TrafficClass uint8
	// Timeout t lets the card wait at least 4.096 µs × 2^t, and up to four times that (InfiniBand
	// Architecture, 9.7.6.1.3), for an acknowledgement before it sends again. 1 to 31; 0 means 17
	// (537 ms). RetryCount is how often it does, 1 to 6; 0 means 6. 7 is refused: soft-RoCE takes it
	// as "for ever". A keep-alive's patience follows Timeout: 2.5 s with 17, twice that with 18. More is
	// for hosts that may not run for seconds.
	Timeout, RetryCount uint8
	// RNRRetry is how often a write with immediate is repeated when the peer has no receive posted, 1
	// to 6 or 7 for ever; 0 means 6. With EndpointOptions.RecvDepth kept, it never happens.
	// MinRNRTimer codes the pause between (1: 10 µs … 12: 640 µs … 31: 492 ms); 0 means 12.
	RNRRetry, MinRNRTimer uint8
	// SendDepth is Attr.MaxPosted, within the device's limit; 0 means 256.
	SendDepth int
	// Inline is the wished Attr.MaxInline; the device may grant less or more. 0 means 256, negative none.
	Inline int
	// RelaxedOrdering lets the card's writes to memory overtake each other. Completions still follow
	// their bytes; whoever polls memory instead of completions must leave it off.
	RelaxedOrdering bool
	// KeepAlive is the pause between probes of a peer; 0 means 500 ms, negative none. A dead peer is
	// reported at most this and the keep-alive's patience (see Timeout) later.
	KeepAlive time.Duration
	// ConnectTimeout is how long a connected endpoint waits for its peer to connect, before it
	// is lost. 0 means 20 seconds.
	ConnectTimeout time.Duration
	// Logger gets port events and the choice of GIDs; nil is silent.
	Logger *zap.Logger `json:"-"`
}

// Defaults of Options.
const (
	defaultTimeout     = 17
	defaultRetry       = 6
	defaultMinRNRTimer = 12
	defaultSendDepth   = 256
	defaultInline      = 256
	defaultKeepAlive   = 500 * time.Millisecond
	defaultConnect     = 20 * time.Second
	defaultRecvDepth   = 64
)

// withDefaults fills in zero fields and refuses bad ones.
func (o Options) withDefaults() (Options, error) {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	o.RetryCount = cmp.Or(o.RetryCount, defaultRetry)
	o.RNRRetry = cmp.Or(o.RNRRetry, defaultRetry)
	o.MinRNRTimer = cmp.Or(o.MinRNRTimer, defaultMinRNRTimer)
	o.RoCEVersion = cmp.Or(o.RoCEVersion, 2)
	o.SendDepth = cmp.Or(o.SendDepth, defaultSendDepth)
	o.Inline = max(0, cmp.Or(o.Inline, defaultInline))
	o.KeepAlive = cmp.Or(o.KeepAlive, defaultKeepAlive)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, defaultConnect)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	for _, c := range []struct {
		name        string
		v, low, top int
	}{
		{"Timeout", int(o.Timeout), 1, 31},
		{"RetryCount", int(o.RetryCount), 1, 6},
		{"RNRRetry", int(o.RNRRetry), 1, 7},
		{"MinRNRTimer", int(o.MinRNRTimer), 1, 31},
		{"ServiceLevel", int(o.ServiceLevel), 0, 15},
		{"RoCEVersion", o.RoCEVersion, 1, 2},
		{"SendDepth", o.SendDepth, 2, 1 << 16},
		{"Inline", o.Inline, 0, 1 << 12},
	} {
		if c.v < c.low || c.v > c.top {
			return o, fmt.Errorf("verbs: option %s is %d, not within %d to %d", c.name, c.v, c.low, c.top)
		}
	}
	if f := o.AddrFamily; f != 0 && f != 4 && f != 6 {
		return o, fmt.Errorf("verbs: option AddrFamily is %d, not 0, 4 or 6", f)
	}
	return o, nil
}
