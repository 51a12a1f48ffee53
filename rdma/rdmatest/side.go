package rdmatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/gccl/gccl/rdma"
)

// memSize is the size of a side's region.
const memSize = 256 << 10

// side is one end of a connection: a device with one queue, one endpoint and one region. One
// goroutine uses it at a time.
type side struct {
	dev   rdma.Device
	cq    rdma.CQ
	ep    rdma.Endpoint
	mem   rdma.Region
	lost  *lostLog
	rings *atomic.Int64
	rung  chan struct{} // has a token after a ring

	received, wrote []rdma.Completion // polled and not yet asked for
	scratch         []rdma.Completion

	peer *side // whose polls this side's writes wait for (rdma.Attr.Landed)
	mu   sync.Mutex
	kept []rdma.Completion // polled by the peer
}

// lostLog records the calls of one OnLost.
type lostLog struct {
	mu     sync.Mutex
	errors []error
}

func (l *lostLog) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
}

func (l *lostLog) all() []error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.errors)
}

// await waits for the one call that there must be.
func (l *lostLog) await(t *testing.T) error {
	t.Helper()
	eventually(t, "OnLost is called", func() bool { return len(l.all()) > 0 })
	errs := l.all()
	require.Len(t, errs, 1, "OnLost is called once")
	require.ErrorIs(t, errs[0], rdma.ErrPeerLost)
	return errs[0]
}

// newSide makes a side on dev, unconnected.
func newSide(dev rdma.Device, opts rdma.EndpointOptions) (*side, error) {
	s := &side{
		dev:     dev,
		lost:    &lostLog{},
		rings:   &atomic.Int64{},
		rung:    make(chan struct{}, 1),
		scratch: make([]rdma.Completion, 32),
	}
	depth := opts.RecvDepth
	if depth == 0 {
		depth = 64
	}
	if opts.OnLost == nil {
		opts.OnLost = s.lost.add
	}
	var err error
	s.cq, err = dev.NewCQ(dev.Attr().MaxPosted+depth, func() {
		s.rings.Add(1)
		select {
		case s.rung <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return nil, err
	}
	if s.ep, err = dev.NewEndpoint(s.cq, opts); err != nil {
		return nil, err
	}
	s.mem, err = dev.Alloc(memSize, "rdmatest")
	return s, err
}

// devices returns n devices, closed with the test.
func devices(t *testing.T, f Factory, n int) []rdma.Device {
	t.Helper()
	devs := f(t, n)
	require.Len(t, devs, n, "the factory's devices")
	t.Cleanup(func() {
		for _, d := range devs {
			assert.NoError(t, d.Close())
		}
	})
	return devs
}

// newPair returns two connected sides on devices of their own.
func newPair(t *testing.T, f Factory, opts rdma.EndpointOptions) (a, b *side) {
	t.Helper()
	devs := devices(t, f, 2)
	return pairOn(t, devs[0], devs[1], opts)
}

// pairOn returns two connected sides on the given devices.
func pairOn(t *testing.T, da, db rdma.Device, opts rdma.EndpointOptions) (a, b *side) {
	t.Helper()
	a, b = apart(t, da, db, opts)
	require.NoError(t, connect(t.Context(), a.ep, b.ep))
	meet(a, b)
	return a, b
}

// apart returns two sides that are not connected.
func apart(t *testing.T, da, db rdma.Device, opts rdma.EndpointOptions) (a, b *side) {
	t.Helper()
	a, err := newSide(da, opts)
	require.NoError(t, err)
	b, err = newSide(db, opts)
	require.NoError(t, err)
	return a, b
}

// meet has two sides poll each other's queues where their writes need it.
func meet(a, b *side) {
	if at := a.dev.Attr(); at.Landed && !at.Autonomous {
		a.peer, b.peer = b, a
	}
}

// pollInto is the queue's Poll, after what the peer has polled.
func (s *side) pollInto(cs []rdma.Completion) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := copy(cs, s.kept); n > 0 {
		s.kept = s.kept[n:]
		return n, nil
	}
	return s.cq.Poll(cs)
}

// drivePeer polls the peer's queue if this side's writes need it and nobody else does.
func (s *side) drivePeer() {
	p := s.peer
	if p == nil || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	cs := make([]rdma.Completion, 32)
	n, _ := p.cq.Poll(cs)
	p.kept = append(p.kept, cs[:n]...)
}

// connect pairs two endpoints, both at once.
func connect(ctx context.Context, a, b rdma.Endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { return a.Connect(ctx, b.Address()) })
	g.Go(func() error { return b.Connect(ctx, a.Address()) })
	return g.Wait()
}

// poll moves what there is from the queue into the lists.
func (s *side) poll() (int, error) {
	n, err := s.pollInto(s.scratch)
	for _, c := range s.scratch[:n] {
		switch c.Kind {
		case rdma.Received:
			s.received = append(s.received, c)
		case rdma.Wrote:
			s.wrote = append(s.wrote, c)
		default:
			return n, fmt.Errorf("completion of kind %d", c.Kind)
		}
	}
	return n, err
}

// pollUntil polls until cond holds.
func (s *side) pollUntil(what string, cond func() bool) error {
	deadline := time.Now().Add(Limit)
	for idle := 0; !cond(); {
		s.drivePeer()
		n, err := s.poll()
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		if n > 0 {
			idle = 0
			continue
		}
		if idle++; idle%64 != 0 {
			runtime.Gosched()
			continue
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %v for %s", Limit, what)
		}
		pause()
	}
	return nil
}

// takeReceived waits for n arrivals and returns them.
func (s *side) takeReceived(t *testing.T, n int) []rdma.Completion {
	t.Helper()
	require.NoError(t, s.pollUntil(fmt.Sprintf("%d arrivals", n), func() bool { return len(s.received) >= n }))
	cs := slices.Clone(s.received[:n])
	s.received = s.received[n:]
	for _, c := range cs {
		require.Equal(t, rdma.Received, c.Kind)
		require.NoError(t, c.Err)
	}
	return cs
}

// takeWrote waits for n local completions, failed ones included, and returns them.
func (s *side) takeWrote(t *testing.T, n int) []rdma.Completion {
	t.Helper()
	require.NoError(t, s.pollUntil(fmt.Sprintf("%d completed writes", n), func() bool { return len(s.wrote) >= n }))
	cs := slices.Clone(s.wrote[:n])
	s.wrote = s.wrote[n:]
	return cs
}

// post hands over all of ws, polling while the queue is full. ws is cleared: Post keeps no
// reference to it.
func (s *side) post(ws ...rdma.Write) error {
	deadline := time.Now().Add(Limit)
	for len(ws) > 0 {
		n, err := s.ep.Post(ws)
		if n < 0 || n > len(ws) {
			return fmt.Errorf("Post took %d of %d", n, len(ws))
		}
		clear(ws[:n])
		ws = ws[n:]
		if err != nil {
			return err
		}
		if len(ws) == 0 {
			break
		}
		s.drivePeer()
		if _, err := s.poll(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the queue stayed full for %v", Limit)
		}
		runtime.Gosched()
	}
	return nil
}

// write describes a signaled write of the side's bytes [from, from+n) to the same place at peer.
func (s *side) write(peer *side, from, n int) rdma.Write {
	return rdma.Write{
		Local: s.mem.Bytes()[from : from+n], Region: s.mem,
		Remote: peer.mem.Remote(), Offset: uint64(from), Signaled: true,
	}
}

// send moves data to the beginning of the peer's region, with imm, and waits until it is there and
// both ends have seen so.
func (s *side) send(t *testing.T, peer *side, data []byte, imm uint32) {
	t.Helper()
	copy(s.mem.Bytes(), data)
	w := s.write(peer, 0, len(data))
	w.ID, w.Imm, w.HasImm = uint64(imm)<<8, imm, true
	require.NoError(t, s.post(w))
	done := s.takeWrote(t, 1)[0]
	require.NoError(t, done.Err)
	require.Equal(t, rdma.Completion{Kind: rdma.Wrote, Endpoint: s.ep.ID(), ID: uint64(imm) << 8}, done)
	got := peer.takeReceived(t, 1)[0]
	require.Equal(t, imm, got.Imm)
	require.Equal(t, peer.ep.ID(), got.Endpoint)
	if got.Len != 0 {
		require.Equal(t, len(data), got.Len)
	}
	require.Equal(t, data, peer.mem.Bytes()[:len(data)])
}

// fill writes a pattern that depends on seed and on the position (splitmix64, 8 bytes a step).
func fill(b []byte, seed uint64) {
	var last [8]byte
	for x := seed; len(b) > 0; {
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		if len(b) < 8 {
			binary.LittleEndian.PutUint64(last[:], z)
			copy(b, last[:])
			return
		}
		binary.LittleEndian.PutUint64(b, z)
		b = b[8:]
	}
}

// pattern returns n bytes of fill.
func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	fill(b, seed)
	return b
}
