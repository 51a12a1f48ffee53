package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// ErrLost says that the connection to the server broke.
var ErrLost = errors.New("store: connection to the server is lost")

// Client is a Store that a Server keeps.
type Client struct {
	conn *wire.Conn
	done chan struct{} // closed when the reader ends; broken is set then

	mu      sync.Mutex
	seq     uint64
	pending map[uint64]chan reply
	broken  error

	sending sync.Mutex
}

// Dial connects to the server at "host:port". It tries until ctx is done, as the server may start
// later.
func Dial(ctx context.Context, addr, secret string) (*Client, error) {
	targets, err := meet.ParseTargets(addr)
	if err != nil {
		return nil, err
	}
	badge := meet.NewBadge(secret, serverRun, 0)
	caller := meet.Caller{
		Badge: badge, Targets: targets, What: "the rendezvous store",
		Hello: wire.Hello{Purpose: wire.Store, Run: badge.Run, Rank: wire.NoRank, Target: wire.NoRank},
	}
	conn, err := caller.Call(ctx)
	if err != nil {
		return nil, err
	}
	conn.MaxData = maxMessage
	id := wire.Identity{PID: uint32(os.Getpid())}
	if id.Host, err = os.Hostname(); err != nil {
		id.Host = "unknown host"
	}
	conn.Net().SetWriteDeadline(time.Now().Add(sendTimeout))
	if err := conn.Send(wire.Frame{Type: wire.Introduce, Payload: id.Append(nil)}); err != nil {
		conn.Net().Close()
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	c := &Client{conn: conn, pending: make(map[uint64]chan reply), done: make(chan struct{})}
	go c.receive()
	return c, nil
}

// sendTimeout bounds the sending of one request.
const sendTimeout = 30 * time.Second

// Set implements Store.
func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	if err := Check(key, value); err != nil {
		return err
	}
	_, err := c.ask(ctx, request{verb: verbSet, key: key, value: value})
	return err
}

// Get implements Store.
func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return c.ask(ctx, request{verb: verbGet, key: key})
}

// CompareAndSet implements Store.
func (c *Client) CompareAndSet(ctx context.Context, key string, old, value []byte) error {
	if err := Check(key, value); err != nil {
		return err
	}
	if len(old) > MaxValue {
		return fmt.Errorf("%w: key %s", ErrConflict, key) // no value is as long
	}
	_, err := c.ask(ctx, request{verb: verbCompareAndSet, key: key, old: old, value: value})
	return err
}

// Delete implements Store.
func (c *Client) Delete(ctx context.Context, prefix string) error {
	if err := CheckPrefix(prefix); err != nil {
		return err
	}
	_, err := c.ask(ctx, request{verb: verbDelete, key: prefix})
	return err
}

// Close implements Store. Calls in progress fail.
func (c *Client) Close() error {
	c.conn.Net().Close()
	<-c.done
	return nil
}

// ask sends a request and waits for its reply.
func (c *Client) ask(ctx context.Context, r request) ([]byte, error) {
	answer := make(chan reply, 1)
	c.mu.Lock()
	c.seq++
	seq := c.seq
	c.pending[seq] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pending, seq)
		c.mu.Unlock()
	}()
	c.sending.Lock()
	c.conn.Net().SetWriteDeadline(time.Now().Add(sendTimeout))
	err := c.conn.Send(wire.Frame{Type: wire.Request, Seq: seq, Payload: r.append(nil)})
	c.sending.Unlock()
	if err != nil {
		c.conn.Net().Close()
	}
	select {
	case a := <-answer:
		return a.result()
	case <-ctx.Done():
		return nil, fmt.Errorf("store: waiting for the server about %s: %w", r.key, context.Cause(ctx))
	case <-c.done:
		select {
		case a := <-answer:
			return a.result()
		default:
			return nil, fmt.Errorf("%w: %w", ErrLost, c.broken)
		}
	}
}

// receive hands replies to those who wait for them.
func (c *Client) receive() {
	defer close(c.done)
	for {
		f, err := c.conn.Receive()
		var a reply
		if err == nil && f.Type != wire.Reply {
			err = fmt.Errorf("unexpected %v frame", f.Type)
		}
		if err == nil {
			a, err = parseReply(f.Payload)
		}
		if err != nil {
			c.broken = err
			c.conn.Net().Close()
			return
		}
		c.mu.Lock()
		waiting := c.pending[f.Seq]
		c.mu.Unlock()
		if waiting != nil {
			select {
			case waiting <- a:
			default: // answered twice
			}
		}
	}
}
