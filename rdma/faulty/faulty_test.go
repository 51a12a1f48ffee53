package faulty_test

import (
	"bytes"
	"math/bits"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/faulty"
	"github.com/gccl/gccl/rdma/loopback"
	"github.com/gccl/gccl/rdma/rdmatest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// A device that misbehaves within the contract is as good as any: the suite passes.
func TestConformance(t *testing.T) {
	for name, plan := range map[string]faulty.Plan{
		"transparent": {},
		"hesitant":    {Seed: 1, ShortPosts: 0.3, HiddenPolls: 0.4, HideLoadStore: true},
		"late":        {Seed: 2, Rates: map[faulty.Fault]float64{faulty.Delay: 0.02}, Delay: 200 * time.Microsecond, HideLoadStore: true},
	} {
		t.Run(name, func(t *testing.T) {
			rdmatest.Run(t, func(_ *testing.T, n int) []rdma.Device {
				net := loopback.NewNetwork()
				devs := make([]rdma.Device, n)
				for i := range devs {
					devs[i], _ = faulty.Wrap(net.Device(loopback.MaxPosted(16)), plan)
				}
				return devs
			})
		})
	}
}

// ends is a faulty device that writes to a plain one.
type ends struct {
	dev       rdma.Device
	ctl       *faulty.Control
	cq        rdma.CQ
	ep        rdma.Endpoint
	mem       rdma.Region
	lost      []error
	rings     atomic.Int64
	peer      rdma.Device
	peerCQ    rdma.CQ
	peerMem   rdma.Region
	peerLost  []error
	peerReady []rdma.Completion
}

func newEnds(t *testing.T, plan faulty.Plan) *ends {
	t.Helper()
	net := loopback.NewNetwork()
	e := &ends{peer: net.Device()}
	e.dev, e.ctl = faulty.Wrap(net.Device(loopback.MaxPosted(8)), plan)
	t.Cleanup(func() {
		assert.NoError(t, e.dev.Close())
		assert.NoError(t, e.peer.Close())
	})
	var err error
	e.cq, err = e.dev.NewCQ(16, func() { e.rings.Add(1) })
	require.NoError(t, err)
	e.ep, err = e.dev.NewEndpoint(e.cq, rdma.EndpointOptions{OnLost: func(err error) { e.lost = append(e.lost, err) }})
	require.NoError(t, err)
	e.peerCQ, err = e.peer.NewCQ(64, nil)
	require.NoError(t, err)
	peerEP, err := e.peer.NewEndpoint(e.peerCQ, rdma.EndpointOptions{OnLost: func(err error) { e.peerLost = append(e.peerLost, err) }})
	require.NoError(t, err)
	require.NoError(t, e.ep.Connect(t.Context(), peerEP.Address()))
	require.NoError(t, peerEP.Connect(t.Context(), e.ep.Address()))
	e.mem, err = e.dev.Alloc(4096, "test")
	require.NoError(t, err)
	e.peerMem, err = e.peer.Alloc(4096, "test")
	require.NoError(t, err)
	for i := range e.mem.Bytes() {
		e.mem.Bytes()[i] = byte(i*7 + 1)
	}
	return e
}

// post writes 100 bytes to offset 100*i, with ID and immediate i.
func (e *ends) post(t *testing.T, i int) {
	t.Helper()
	n, err := e.ep.Post([]rdma.Write{e.write(i)})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func (e *ends) write(i int) rdma.Write {
	return rdma.Write{
		ID: uint64(i), Local: e.mem.Bytes()[100*i : 100*i+100], Region: e.mem, Remote: e.peerMem.Remote(),
		Offset: uint64(100 * i), Imm: uint32(i), HasImm: true, Signaled: true,
	}
}

func poll(t *testing.T, cq rdma.CQ) []rdma.Completion {
	t.Helper()
	cs := make([]rdma.Completion, 32)
	n, err := cq.Poll(cs)
	require.NoError(t, err)
	return cs[:n]
}

func (e *ends) imms(t *testing.T) (imms []uint32) {
	for _, c := range poll(t, e.peerCQ) {
		imms = append(imms, c.Imm)
	}
	return imms
}

func (e *ends) same(i int) bool {
	return bytes.Equal(e.mem.Bytes()[100*i:100*i+100], e.peerMem.Bytes()[100*i:100*i+100])
}

func at(k uint64, f faulty.Fault) faulty.Plan {
	return faulty.Plan{At: []faulty.Event{{Post: k, Fault: f}}}
}

func TestDropLosesOneWriteSilently(t *testing.T) {
	e := newEnds(t, at(1, faulty.Drop))
	for i := range 3 {
		e.post(t, i)
	}
	assert.Equal(t, []uint32{0, 2}, e.imms(t))
	assert.True(t, e.same(0))
	assert.Equal(t, make([]byte, 100), e.peerMem.Bytes()[100:200])
	assert.True(t, e.same(2))
	for i, c := range poll(t, e.cq) {
		assert.NoError(t, c.Err)
		assert.Equal(t, uint64(i), c.ID)
	}
	assert.Equal(t, []faulty.Event{{Endpoint: 1, Post: 1, Fault: faulty.Drop}}, e.ctl.Injected())
}

func TestTruncateWritesHalf(t *testing.T) {
	e := newEnds(t, at(0, faulty.Truncate))
	e.post(t, 0)
	assert.Equal(t, []uint32{0}, e.imms(t))
	assert.Equal(t, e.mem.Bytes()[:50], e.peerMem.Bytes()[:50])
	assert.Equal(t, make([]byte, 50), e.peerMem.Bytes()[50:100])
}

func TestCorruptFlipsOneBit(t *testing.T) {
	for _, inline := range []bool{false, true} {
		e := newEnds(t, at(0, faulty.Corrupt))
		w := e.write(0)
		if w.Inline = inline; inline {
			w.Region = nil
		}
		before := bytes.Clone(w.Local)
		_, err := e.ep.Post([]rdma.Write{w})
		require.NoError(t, err)
		assert.Equal(t, before, w.Local, "the source stays as it is")
		flipped := 0
		for i, b := range e.peerMem.Bytes()[:100] {
			flipped += bits.OnesCount8(b ^ before[i])
		}
		assert.Equal(t, 1, flipped)
		assert.Len(t, poll(t, e.cq), 1)
	}
}

func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := at(1, faulty.Delay)
		plan.Delay = time.Second
		e := newEnds(t, plan)
		for i := range 4 {
			e.post(t, i)
		}
		assert.Equal(t, []uint32{0}, e.imms(t))
		assert.Len(t, poll(t, e.cq), 1)
		require.NoError(t, e.cq.Arm())
		time.Sleep(time.Second - 1)
		synctest.Wait()
		assert.Empty(t, e.imms(t))
		assert.Zero(t, e.rings.Load())
		time.Sleep(1)
		synctest.Wait()
		assert.Equal(t, []uint32{1, 2, 3}, e.imms(t), "nobody had to poll at the sender")
		assert.Equal(t, int64(1), e.rings.Load())
		assert.Len(t, poll(t, e.cq), 3)
	})
}

// An inline write's bytes are taken when it is held back.
func TestDelayTakesInlineBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t, at(0, faulty.Delay))
		b := []byte("inline")
		_, err := e.ep.Post([]rdma.Write{{Local: b, Inline: true, Remote: e.peerMem.Remote()}})
		require.NoError(t, err)
		clear(b)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, "inline", string(e.peerMem.Bytes()[:6]))
	})
}

func TestStallFillsTheQueue(t *testing.T) {
	e := newEnds(t, at(2, faulty.Stall))
	taken := 0
	for i := range 30 {
		n, err := e.ep.Post([]rdma.Write{e.write(i)})
		require.NoError(t, err)
		taken += n
		poll(t, e.cq)
	}
	assert.Equal(t, 2+8, taken)
	assert.Equal(t, []uint32{0, 1}, e.imms(t))
	assert.Empty(t, e.lost)
	assert.Empty(t, e.peerLost)
	// What is held completes, once, when the peer goes.
	require.NoError(t, e.cq.Arm())
	require.NoError(t, e.peer.Close())
	assert.Len(t, e.lost, 1)
	assert.Equal(t, int64(1), e.rings.Load())
	cs := poll(t, e.cq)
	require.Len(t, cs, 8)
	for i, c := range cs {
		assert.Equal(t, uint64(i+2), c.ID%30)
		assert.ErrorIs(t, c.Err, rdma.ErrPeerLost)
	}
	assert.Empty(t, poll(t, e.cq))
}

func TestBreak(t *testing.T) {
	e := newEnds(t, at(2, faulty.Break))
	n, err := e.ep.Post([]rdma.Write{e.write(0), e.write(1), e.write(2), e.write(3)})
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	require.Len(t, e.lost, 1)
	assert.ErrorIs(t, e.lost[0], rdma.ErrPeerLost)
	require.Len(t, e.peerLost, 1)
	assert.Equal(t, []uint32{0, 1}, e.imms(t))
	cs := poll(t, e.cq)
	require.Len(t, cs, 3)
	assert.NoError(t, cs[0].Err)
	assert.NoError(t, cs[1].Err)
	assert.Equal(t, uint64(2), cs[2].ID)
	assert.ErrorIs(t, cs[2].Err, rdma.ErrPeerLost)
	_, err = e.ep.Post([]rdma.Write{e.write(4)})
	assert.ErrorIs(t, err, rdma.ErrPeerLost)
	e.ctl.Break(1) // again, and one that does not exist
	e.ctl.Break(7)
	assert.Len(t, e.lost, 1)
}

func TestDie(t *testing.T) {
	e := newEnds(t, at(1, faulty.Die))
	require.NoError(t, e.cq.Arm())
	e.post(t, 0)
	n, err := e.ep.Post([]rdma.Write{e.write(1), e.write(2)})
	assert.Zero(t, n)
	assert.ErrorIs(t, err, rdma.ErrClosed)
	assert.ErrorContains(t, err, "died by plan")
	require.Len(t, e.peerLost, 1)
	assert.ErrorIs(t, e.peerLost[0], rdma.ErrPeerLost)
	assert.Empty(t, e.lost, "the dead hear nothing")
	_, err = e.cq.Poll(make([]rdma.Completion, 1))
	assert.ErrorIs(t, err, rdma.ErrClosed)
	_, err = e.dev.Alloc(64, "test")
	assert.ErrorIs(t, err, rdma.ErrClosed)
	assert.Equal(t, []uint32{0}, e.imms(t))
}

// Death wakes whoever waits on the device.
func TestDieWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnds(t, faulty.Plan{})
		require.NoError(t, e.cq.Arm())
		bell := e.dev.(rdma.BellDevice).Bell()
		bell.Arm()
		start := time.Now()
		go e.ctl.Die()
		bell.Sleep(time.Hour)
		synctest.Wait()
		assert.Zero(t, time.Since(start))
		assert.Equal(t, int64(1), e.rings.Load())
	})
}

// OnLost may close its endpoint, also when it comes up inside Post.
func TestOnLostMayClose(t *testing.T) {
	net := loopback.NewNetwork()
	dev, _ := faulty.Wrap(net.Device(), faulty.Plan{})
	peer := net.Device()
	defer func() {
		assert.NoError(t, dev.Close())
		assert.NoError(t, peer.Close())
	}()
	cq, err := dev.NewCQ(4, nil)
	require.NoError(t, err)
	var ep rdma.Endpoint
	calls := 0
	ep, err = dev.NewEndpoint(cq, rdma.EndpointOptions{OnLost: func(error) {
		calls++
		assert.NoError(t, ep.Close())
	}})
	require.NoError(t, err)
	peerCQ, err := peer.NewCQ(4, nil)
	require.NoError(t, err)
	peerEP, err := peer.NewEndpoint(peerCQ, rdma.EndpointOptions{})
	require.NoError(t, err)
	require.NoError(t, ep.Connect(t.Context(), peerEP.Address()))
	n, err := ep.Post([]rdma.Write{{Local: []byte("no such key"), Inline: true, Signaled: true}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	assert.Equal(t, 1, calls)
	_, err = ep.Post([]rdma.Write{{Signaled: true}})
	assert.ErrorIs(t, err, rdma.ErrClosed)
}

func TestHideLoadStore(t *testing.T) {
	_, ok := newEnds(t, faulty.Plan{}).ep.(rdma.LoadStore)
	assert.True(t, ok)
	_, ok = newEnds(t, faulty.Plan{HideLoadStore: true}).ep.(rdma.LoadStore)
	assert.False(t, ok)
}

// Decisions depend on seed, endpoint and post alone, at about the given rates.
func TestPlanIsDeterministic(t *testing.T) {
	plan := faulty.Plan{Seed: 3, Rates: map[faulty.Fault]float64{faulty.Drop: 0.1, faulty.Corrupt: 0.2}}
	again := plan
	other := plan
	other.Seed++
	count := map[faulty.Fault]int{}
	differs := 0
	for ep := 1; ep <= 4; ep++ {
		for k := range uint64(10000) {
			f := plan.FaultAt(ep, k)
			require.Equal(t, f, again.FaultAt(ep, k))
			if f != other.FaultAt(ep, k) {
				differs++
			}
			count[f]++
		}
	}
	assert.InDelta(t, 4000, count[faulty.Drop], 400)
	assert.InDelta(t, 8000, count[faulty.Corrupt], 600)
	assert.Equal(t, 40000, count[faulty.Drop]+count[faulty.Corrupt]+count[faulty.None])
	assert.Positive(t, differs)
	assert.Equal(t, "corrupt at write 7 of endpoint 2", faulty.Event{Endpoint: 2, Post: 7, Fault: faulty.Corrupt}.String())
}
