package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

const (
	attemptTimeout = 5 * time.Second // to connect to one address and verify who answers
	firstPause     = 10 * time.Millisecond
	longestPause   = time.Second
	secretTries    = 5 // tries that must end with a wrong secret, and nothing else, to be believed
)

// caller dials one server of the job, by whichever of its addresses leads there.
type caller struct {
	badge
	hello   wire.Hello
	targets []target
	what    string // whom it calls, for messages: "rank 0"

	// remote means that the server is known to be on another host than some callers, so that a name
	// that resolves to a loopback address misleads.
	remote bool

	// dial and resolve are package net's, but for tests.
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	resolve func(ctx context.Context, host string) ([]string, error)
}

func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err == nil {
		tune(nc)
	}
	return nc, err
}

func resolveHost(ctx context.Context, host string) ([]string, error) {
	return net.DefaultResolver.LookupHost(ctx, host)
}

// call tries all addresses in parallel, each again and again, until one proves to belong to the job or
// ctx is done. Refusals, resets and names that do not resolve yet are usual while a job starts.
func (c *caller) call(ctx context.Context) (*wire.Conn, error) {
	trying, cancel := context.WithCancel(ctx)
	a := attempts{
		caller: c, seen: make(map[string]*verdict),
		greeted: make(chan *wire.Pending), hopeless: make(chan struct{}, 1),
	}
	defer a.workers.Wait()
	defer cancel()
	for _, t := range c.targets {
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
				ErrConfig, c.what, a.describe())
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: no answer from %s: %w%s", ErrTimeout, c.what, context.Cause(ctx), a.describe())
		}
	}
}

// attempts is the state of one call.
type attempts struct {
	*caller
	workers  sync.WaitGroup
	greeted  chan *wire.Pending
	hopeless chan struct{}

	mu   sync.Mutex
	seen map[string]*verdict // by address, and by name for what does not resolve
}

// verdict is what became of the attempts at one address.
type verdict struct {
	err     error // of the last
	tries   int
	secrets int // how many in a row found another secret
}

// follow keeps a target's addresses tried; a name is resolved again from time to time.
func (a *attempts) follow(ctx context.Context, t target) {
	pause := firstPause
	for {
		ips := []string{t.host}
		fixed := isIP(t.host)
		if !fixed {
			var err error
			if ips, err = a.resolve(ctx, t.host); err != nil {
				a.note(ctx, t.host, err)
			}
		}
		for _, ip := range ips {
			if addr, err := netip.ParseAddr(ip); err == nil && addr.IsLoopback() && a.remote {
				a.note(ctx, t.host, fmt.Errorf("means %s here, which leads to no other host (see /etc/hosts)", ip))
				continue
			}
			for port := t.first; port <= t.last; port++ {
				a.start(ctx, joinHostPort(ip, port))
			}
		}
		if fixed || !rest(ctx, &pause, 5*longestPause) {
			return
		}
	}
}

// start begins to try an address, unless that has begun before.
func (a *attempts) start(ctx context.Context, addr string) {
	a.mu.Lock()
	_, known := a.seen[addr]
	if !known {
		a.seen[addr] = &verdict{err: errors.New("not tried yet")}
	}
	a.mu.Unlock()
	if !known {
		a.workers.Go(func() { a.try(ctx, addr) })
	}
}

// try greets an address until ctx is done.
func (a *attempts) try(ctx context.Context, addr string) {
	pause := firstPause
	for {
		p, err := a.greet(ctx, addr)
		a.note(ctx, addr, err)
		if err == nil {
			select {
			case a.greeted <- p:
			case <-ctx.Done():
				p.Close()
			}
		}
		if !rest(ctx, &pause, longestPause) {
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
	if ctx.Err() != nil && v.tries > 0 {
		return
	}
	v.err = err
	v.tries++
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

// greet connects to one address and lets the server prove itself.
func (a *attempts) greet(ctx context.Context, addr string) (*wire.Pending, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	nc, err := a.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	p, err := wire.Greet(nc, a.key, a.hello)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return p, nil
}

// rest waits for a random time around *pause and doubles it. It returns false once ctx is done.
func rest(ctx context.Context, pause *time.Duration, longest time.Duration) bool {
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
