package meet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

const (
	attemptTimeout = 5 * time.Second // to connect to one address and verify who answers
	FirstPause     = 10 * time.Millisecond
	LongestPause   = time.Second
	secretTries    = 5 // tries that must end with a wrong secret, and nothing else, to be believed
)

// BindPatience is how long a root waits for a port that is in use, as an earlier run of the job may
// be about to end.
const BindPatience = 10 * time.Second

// otherPatience is how long every address must answer that it serves others to be believed: longer than the
// root may wait for one of them.
const otherPatience = BindPatience + 2*time.Second

// firstWord is after how long a call says for the first time what keeps it.
const firstWord = 10 * time.Second

// refusals is how often an address must refuse in a row to be believed, with Caller.Refusable.
const refusals = 2

// Errors of a call.
var (
	// ErrRefused: the server has left, as it says itself, or every address refused the connection.
	ErrRefused = errors.New("nobody listens there any more")

	// ErrOther: every address is that of another server.
	ErrOther = errors.New("others listen there")

	ErrTimeout = errors.New("bootstrap timed out")
	ErrConfig  = errors.New("bad configuration")
)

// Caller dials one server of the job, by whichever of its addresses leads there.
type Caller struct {
	Badge
	Hello   wire.Hello
	Targets []Target
	What    string // whom it calls, for messages: "rank 0"

	// Remote means that the server is known to be on another host than some callers, so that a name
	// that resolves to a loopback address misleads.
	Remote bool

	// Refusable ends the call with ErrRefused once a server says that it has left, or every address
	// has refused the connection: the server has been there and will not come again. The targets must
	// be addresses, no names.
	Refusable bool

	// Decided means that the server, once it listens, serves who belongs to it. The call then ends
	// with ErrOther when all addresses have answered for otherPatience that they serve others.
	Decided bool

	// Log, if not nil, is told after firstWord, and again from time to time, why there is no answer.
	Log *zap.Logger

	// Dial and Resolve replace package net's in tests.
	Dial    func(ctx context.Context, addr string) (net.Conn, error)
	Resolve func(ctx context.Context, host string) ([]string, error)
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		tune(nc)
	}
	return nc, err
}

// Call tries all addresses in parallel, each again and again, until one proves to belong to the job or
// ctx is done. Refusals, resets and names that do not resolve yet are usual while a job starts.
func (c *Caller) Call(ctx context.Context) (*wire.Conn, error) {
	if c.Dial == nil {
		c.Dial = dialTCP
	}
	if c.Resolve == nil {
		c.Resolve = net.DefaultResolver.LookupHost
	}
	trying, cancel := context.WithCancel(ctx)
	a := attempts{
		Caller: c, seen: make(map[string]*verdict),
		greeted: make(chan *wire.Pending), hopeless: make(chan struct{}, 1), refused: make(chan struct{}, 1),
		others: make(chan struct{}, 1),
	}
	c.Hello.PID = uint32(os.Getpid())
	if c.Log != nil {
		defer Remind(firstWord, func() { c.Log.Warn(fmt.Sprintf("no answer from %s yet%s", c.What, a.describe())) })()
	}
	defer a.workers.Wait()
	defer cancel()
	for _, t := range c.Targets {
		a.workers.Go(func() { a.follow(trying, t) })
	}
	for {
		select {
		case p := <-a.greeted:
			conn, err := p.Prove()
			if err != nil {
				p.Close()
				continue // its address is being tried again
			}
			return conn, nil
		case <-a.hopeless:
			return nil, fmt.Errorf("%w: %s does not know this rank's secret; give all ranks the same GCCL_SECRET%s",
				ErrConfig, c.What, a.describe())
		case <-a.refused:
			return nil, fmt.Errorf("%w: %s%s", ErrRefused, c.What, a.describe())
		case <-a.others:
			return nil, fmt.Errorf("%w: no answer from %s%s", ErrOther, c.What, a.describe())
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no answer from %s: %w%s", ErrTimeout, c.What, context.Cause(ctx), a.describe())
		}
	}
}

// attempts is the state of one call.
type attempts struct {
	*Caller
	workers  sync.WaitGroup
	greeted  chan *wire.Pending
	hopeless chan struct{}
	refused  chan struct{}
	others   chan struct{}

	mu   sync.Mutex
	seen map[string]*verdict // by address, and by name for what does not resolve
}

// errUnanswered is the verdict on an address until an attempt has ended by itself.
var errUnanswered = errors.New("no answer in time (does a firewall drop this port? GCCL_PORT_RANGE chooses ports)")

// verdict is what became of the attempts at one address.
type verdict struct {
	err     error // of the last
	tries   int
	secrets int // how many in a row found another secret
	refused int // how many in a row were refused

	place  place
	others time.Time // since when another server has answered; zero: none does
}

// place is a port of a target, which a name may lead to at several addresses.
type place struct {
	host string
	port int
}

// follow keeps a target's addresses tried; a name is resolved again from time to time.
func (a *attempts) follow(ctx context.Context, t Target) {
	pause := FirstPause
	for {
		ips := []string{t.Host}
		fixed := t.IsIP()
		if !fixed {
			var err error
			if ips, err = a.Resolve(ctx, t.Host); err != nil {
				a.note(ctx, t.Host, err)
			}
		}
		for _, ip := range ips {
			if addr, err := netip.ParseAddr(ip); err == nil && addr.IsLoopback() && a.Remote {
				a.note(ctx, t.Host, fmt.Errorf("means %s here, which leads to no other host (see /etc/hosts)", ip))
				continue
			}
			for port := t.First; port <= t.Last; port++ {
				a.start(ctx, JoinHostPort(ip, port), place{t.Host, port})
			}
		}
		if fixed || !Rest(ctx, &pause, 5*LongestPause) {
			return
		}
	}
}

// start begins to try an address, unless that has begun before.
func (a *attempts) start(ctx context.Context, addr string, at place) {
	a.mu.Lock()
	_, known := a.seen[addr]
	if !known {
		a.seen[addr] = &verdict{err: errUnanswered, place: at}
	}
	a.mu.Unlock()
	if !known {
		a.workers.Go(func() { a.try(ctx, addr) })
	}
}

// try greets an address until ctx is done.
func (a *attempts) try(ctx context.Context, addr string) {
	pause := FirstPause
	for {
		start := time.Now()
		p, err := a.greet(ctx, addr)
		if cut := isTimeout(err) && time.Since(start) < attemptTimeout; !cut {
			a.note(ctx, addr, err)
		}
		if err == nil {
			select {
			case a.greeted <- p:
			case <-ctx.Done():
				p.Close()
			}
		}
		if !Rest(ctx, &pause, LongestPause) {
			return
		}
	}
}

// note records how an attempt ended. Attempts that end because the call does tell nothing.
func (a *attempts) note(ctx context.Context, addr string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	v := a.seen[addr]
	if v == nil {
		v = &verdict{}
		a.seen[addr] = v
	}
	if ctx.Err() != nil {
		return
	}
	v.err = err
	v.tries++
	a.countRefusal(v)
	a.countOther(v)
	if !errors.Is(err, wire.ErrSecret) {
		v.secrets = 0
		return
	}
	if v.secrets++; v.secrets < secretTries {
		return
	}
	for _, other := range a.seen {
		if !errors.Is(other.err, wire.ErrSecret) {
			return
		}
	}
	select {
	case a.hopeless <- struct{}{}:
	default:
	}
}

// countRefusal notes whether an address refused the connection, and ends the call if all do. The
// caller holds the lock.
func (a *attempts) countRefusal(v *verdict) {
	var said *wire.Refused
	left := errors.As(v.err, &said) && said.Code == wire.Left
	if !left && !errors.Is(v.err, syscall.ECONNREFUSED) {
		v.refused = 0
		return
	}
	v.refused++
	if !a.Refusable {
		return
	}
	if !left {
		if len(a.seen) < len(a.Targets) {
			return
		}
		for _, other := range a.seen {
			if other.refused < refusals {
				return
			}
		}
	}
	select {
	case a.refused <- struct{}{}:
	default:
	}
}

// greet connects to one address and lets the server prove itself.
func (a *attempts) greet(ctx context.Context, addr string) (*wire.Pending, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	nc, err := a.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	p, err := wire.Greet(nc, a.Key, a.Hello)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return p, nil
}

// Rest waits for a random time around *pause and doubles it. It returns false once ctx is done.
func Rest(ctx context.Context, pause *time.Duration, longest time.Duration) bool {
	t := time.NewTimer(*pause/2 + rand.N(*pause))
	defer t.Stop()
	*pause = min(2**pause, longest)
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
