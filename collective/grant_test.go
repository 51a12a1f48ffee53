package collective

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// RunGranted sends tensors, registered and not, in lengths around those of slots, from rank 0 to rank 1, one after the
// other and in groups, and makes every collective by every algorithm on registered tensors of some slots.
// It returns how many calls it made.
func RunGranted(c *Comm) (calls int, err error) {
	ctx := context.Background()
	const most = 1<<20 + 5000
	var a allocated
	for i := range a.windows {
		if a.windows[i], err = c.Alloc(ctx, tensor.Uint8, most); err != nil {
			return 0, err
		}
	}
	own := [2][]byte{make([]byte, most), make([]byte, most)}
	for i, n := range []int{64<<10 - 1, 64 << 10, 100001, 128<<10 + 1, 1<<20 + 4097} {
		for way := range 4 { // the sender registered or not, the receiver registered or not
			x := [2][]byte{a.windows[0].Bytes()[i:], own[0]}[way>>c.rank&1][:n]
			y := [2][]byte{a.windows[1].Bytes()[i:], own[1]}[way>>c.rank&1][:n]
			seed := byte(4*i + way)
			list := []Call{{Kind: Send, Peer: 1, Src: tensor.Of(x)}}
			if c.rank == 1 {
				list = []Call{{Kind: Recv, Peer: 0, Dst: tensor.Of(x)}}
			}
			if n < most/4 { // several at once
				list = list[:0]
				for k := range 4 {
					part := tensor.Of([2][]byte{x, y}[k&1])
					if k > 1 {
						part = tensor.Of(make([]byte, n))
					}
					call := Call{Kind: Send, Peer: 1, Src: part}
					if c.rank == 1 {
						call = Call{Kind: Recv, Peer: 0, Dst: part}
					}
					list = append(list, call)
				}
			}
			for k, call := range list {
				if c.rank == 0 {
					stripe(call.Src.Bytes(), seed+byte(k))
				} else if c.rank == 1 {
					clear(call.Dst.Bytes())
				}
			}
			if c.rank > 1 {
				continue
			}
			if err := c.Group(ctx, list...); err != nil {
				return calls, err
			}
			calls += len(list)
			for k, call := range list {
				want := make([]byte, n)
				if stripe(want, seed+byte(k)); c.rank == 1 && !bytes.Equal(want, call.Dst.Bytes()) {
					return calls, fmt.Errorf("message %d of %d bytes, way %d, is wrong", k, n, way)
				}
			}
		}
	}
	infos := catalog()
	for k := range infos {
		info := &infos[k]
		if info.Supports(c.size, schedule.Shape{}) != nil {
			continue
		}
		for _, inPlace := range []bool{false, true} {
			if inPlace && !info.InPlace {
				continue
			}
			blocks := max(info.Collective.InBlocks(c.size), info.Collective.OutBlocks(c.size))
			tc := tableCase{info: info, dt: tensor.Float32, op: tensor.Sum, count: (most - 600) / 4 / blocks, inPlace: inPlace, odd: blocks%2 == 0, root: c.size - 1}
			a.next = 0
			if err := tc.runIn(c, a.place); err != nil {
				return calls, fmt.Errorf("rank %d of %d: %v, registered: %w", c.rank, c.size, tc, err)
			}
			calls++
		}
	}
	for _, w := range a.windows {
		if err := c.Free(w); err != nil {
			return calls, err
		}
	}
	return calls, nil
}

func stripe(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i) + byte(i>>8) ^ seed
	}
}

// Placed is how many messages went straight to registered tensors of peers, over posted writes.
func Placed(c *Comm) uint64 { return c.mesh.Placed() }

func TestGranted(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		for _, sums := range []bool{false, true} {
			comms := local(t, n, Config{Timeout: time.Minute, noMap: true, Checksum: sums})
			each(t, comms, func(c *Comm) error {
				calls, err := RunGranted(c)
				if err == nil && calls < 20 {
					err = fmt.Errorf("%d calls", calls)
				}
				return err
			})
			for _, c := range comms {
				require.Equal(t, sums, Placed(c) == 0, "rank %d of %d placed %d messages", c.rank, n, Placed(c))
			}
		}
	}
}

// late is a device whose endpoint holds back all writes from one on, until they are let go.
type late struct {
	rdma.Device
	from   int
	fails  int  // if positive, so many are held back, and the next is refused
	onWire bool // what is held back has left: it comes even if the endpoint has been closed meanwhile
	ends   []*lateEnd
}

type lateEnd struct {
	rdma.Endpoint
	dev *late

	mu     sync.Mutex
	posts  int
	held   []rdma.Write
	closed bool
}

func (d *late) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (rdma.Endpoint, error) {
	e, err := d.Device.NewEndpoint(cq, opts)
	if err != nil {
		return nil, err
	}
	d.ends = append(d.ends, &lateEnd{Endpoint: e, dev: d})
	return d.ends[len(d.ends)-1], nil
}

func (e *lateEnd) Post(ws []rdma.Write) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return 0, rdma.ErrClosed
	}
	for i, w := range ws {
		if e.dev.fails > 0 && len(e.held) == e.dev.fails {
			return i, fmt.Errorf("a test's fault: %w", rdma.ErrPeerLost)
		}
		if e.posts++; e.posts > e.dev.from {
			if w.Inline {
				w.Local = bytes.Clone(w.Local)
			}
			e.held = append(e.held, w)
			continue
		}
		if n, err := e.Endpoint.Post([]rdma.Write{w}); n == 0 || err != nil {
			e.posts--
			return i, err
		}
	}
	return len(ws), nil
}

func (e *lateEnd) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.dev.onWire {
		return nil
	}
	e.held = nil
	return e.Endpoint.Close()
}

// let go of what is held.
func (d *late) let() {
	for _, e := range d.ends {
		e.mu.Lock()
		for _, w := range e.held {
			w.Signaled = true
			_, _ = e.Endpoint.Post([]rdma.Write{w})
		}
		e.held = nil
		e.mu.Unlock()
	}
}

// However late the writes of a failed call come, they change nothing that its owners have been given back; and what the sender's
// owner has been given back, the receiver does not take for the message. Every write of the call, and all after it, are held back
// until the sender has given up, or both have; or the sender's writes are refused after some.
func TestNothingLandsAfterFailure(t *testing.T) {
	const n = 1 << 20
	var lost, partly int
	for _, way := range []struct {
		onWire bool
		fails  int
	}{{false, 0}, {true, 0}, {false, 1}, {false, 2}, {false, 3}} {
		onWire := way.onWire
		for from := range 12 { // more than the sender posts
			synctest.Test(t, func(t *testing.T) {
				var dev *late
				cfg := Config{Heartbeat: time.Hour, Spin: -1, noMap: true, still: true, BufferBytes: 1 << 20,
					wrap: func(r int, d rdma.Device) rdma.Device {
						if r == 0 {
							dev = &late{Device: d, from: from + 1<<20, onWire: onWire}
							return dev
						}
						return d
					}}
				comms, err := NewLocal(context.Background(), 2, cfg)
				require.NoError(t, err)
				var mem [2]tensor.Tensor
				each(t, comms, func(c *Comm) (err error) {
					mem[c.rank], err = c.Alloc(context.Background(), tensor.Uint8, n)
					return err
				})
				stripe(mem[0].Bytes(), 1)
				dev.from, dev.fails = dev.ends[0].posts+from, way.fails
				give := func(r int) { // its owner's again
					for i, b := 0, mem[r].Bytes(); i < n; i++ {
						b[i] = 0xee + byte(r)
					}
				}
				var wg sync.WaitGroup
				var sent, received error
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					sent = comms[0].Send(ctx, mem[0], 1)
					give(0)
					if !onWire {
						dev.let()
					}
				})
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					defer cancel()
					received = comms[1].Recv(ctx, mem[1], 0)
					if b := mem[1].Bytes(); received == nil {
						want := make([]byte, n)
						stripe(want, 1)
						require.True(t, bytes.Equal(want, b), "held from write %d: the message is not what was sent", from)
					} else if lost++; b[2] != 0 {
						partly++
					}
					give(1)
				})
				wg.Wait()
				if onWire {
					dev.let()
					for r := range mem {
						require.Equal(t, n, bytes.Count(mem[r].Bytes(), []byte{0xee + byte(r)}), "rank %d, held from write %d", r, from)
					}
				}
				require.False(t, sent == nil && received != nil && from == 0)
				for _, c := range comms {
					_ = c.Close()
				}
				for _, e := range dev.ends {
					_ = e.Endpoint.Close()
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	require.NotZero(t, partly, "in no case had a part come")
	t.Logf("%d calls failed, %d in the midst of the data", lost, partly)
}

// ender is a device that shows its endpoint.
type ender struct {
	rdma.Device
	end rdma.Endpoint
}

func (d *ender) NewEndpoint(cq rdma.CQ, opts rdma.EndpointOptions) (e rdma.Endpoint, err error) {
	d.end, err = d.Device.NewEndpoint(cq, opts)
	return d.end, err
}

// What no correct peer sends ends a short call, too, whose polls are its own.
func TestShortCallsRefuseWhatIsCorrupt(t *testing.T) {
	dev := &ender{}
	comms := local(t, 2, Config{Heartbeat: time.Hour, Spin: 100, noMap: true, still: true, wrap: func(r int, d rdma.Device) rdma.Device {
		if r == 0 {
			dev.Device = d
			return dev
		}
		return d
	}})
	for _, c := range comms {
		c.pulse.stop() // which polls and posts, too
	}
	n, err := dev.end.Post([]rdma.Write{{Imm: 63 << 24, HasImm: true, Signaled: true}}) // of a lane that is not there
	require.NoError(t, err)
	require.Equal(t, 1, n)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.ErrorIs(t, comms[1].Recv(ctx, tensor.Of([]int64{0}), 0), ErrCorrupt)
}
