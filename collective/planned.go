package collective

import (
	"fmt"
	"math"
	"slices"

	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/recorder"
	"github.com/gccl/gccl/schedule"
	"github.com/gccl/gccl/tensor"
)

// planKey is everything that a plan depends on, but for uneven counts.
type planKey struct {
	kind       Kind
	dtype      tensor.DType
	op         tensor.Op
	count      int
	root       int
	peer       int
	registered bool
	uneven     bool
	inPlace    bool // of an AllToAll
}

// planned is a call made ready: compiled schedule, reducer and description.
type planned struct {
	key       planKey
	shape     shape          // of uneven calls
	plan      *executor.Plan // nil until the plan has been run once, if it wants links that are not there
	later     *unbound       // of such a plan
	reducer   *tensor.Reducer
	sort      *recorder.Sort // which the flight recorder keeps, and nothing else of the plan
	fp        uint64         // fingerprint without epoch and sequence number
	algorithm string
	// attachMin and exchangeMin are executor.Args.AttachMin, the second of a transfer in a group that has some the other way.
	attachMin, exchangeMin int
}

// maxPlans bounds the cache; the whole cache is dropped when it is full, which costs a few
// microseconds a call until it is warm again.
const maxPlans = 4096

// callKey is what of a call decides whether it is like the call before it: all but the addresses.
type callKey struct {
	kind          Kind
	dtype, dtype2 tensor.DType
	registered    bool
	op            tensor.Op
	overlap       tensor.Overlap // Disjoint or Same; another is checked every time
	src, dst      int
	root, peer    int
}

// recent is a call with its plan. The zero key is no call's.
type recent struct {
	key  callKey
	plan *planned
	// Of the very call, if viewed: it had host memory and no counts, so that all checks hold for it again.
	src, dst   view
	op         tensor.Op
	root, peer int
	viewed     bool
}

// view is a tensor in host memory as numbers, which keep nothing alive.
type view struct {
	addr  uint64
	bytes int
	dtype tensor.DType
}

func viewOf(t tensor.Tensor) view { return view{t.Addr(), t.Size(), t.DType()} }

// is reports whether t is that view.
func (v *view) is(t *tensor.Tensor) bool {
	return t.Addr() == v.addr && t.Size() == v.bytes && t.DType() == v.dtype && t.Device() == tensor.Host
}

// same returns the call before this one of its kind if it is this one on the very same tensors, in host memory.
func (c *Comm) same(call *Call) *recent {
	if call.Kind > Recv || call.Counts != nil || call.RecvCounts != nil {
		return nil
	}
	r := &c.recent[call.Kind]
	if !r.viewed || !r.src.is(&call.Src) || !r.dst.is(&call.Dst) || r.root != call.Root || r.peer != call.Peer || r.op != call.Op {
		return nil
	}
	return r
}

// ready checks a call and returns its plan. A call like the one before it of its kind only has its
// addresses checked, and one on the very same tensors nothing: what makes small messages fast.
func (c *Comm) ready(call *Call) (*planned, error) {
	if r := c.same(call); r != nil {
		return r.plan, nil
	}
	key := callKey{call.Kind, call.Src.DType(), call.Dst.DType(), c.registered(call), call.Op, tensor.Compare(call.Dst, call.Src),
		call.Src.Len(), call.Dst.Len(), call.Root, call.Peer}
	if key.kind > 0 && key.kind <= Recv && key == c.recent[key.kind].key && call.Counts == nil && call.RecvCounts == nil {
		p := c.recent[key.kind].plan
		c.remember(call, key, p)
		return p, nil
	}
	if err := c.check(call, &c.sh); err != nil {
		return nil, err
	}
	p, err := c.planFor(call, &c.sh)
	if err != nil {
		return nil, err
	}
	if p.key.uneven || key.overlap == tensor.Partial {
		key = callKey{}
	}
	c.remember(call, key, p)
	return p, nil
}

// remember keeps a call that has passed all checks.
func (c *Comm) remember(call *Call, key callKey, p *planned) {
	r := recent{key: key, plan: p}
	if call.Counts == nil && call.RecvCounts == nil && !onDevice(call) {
		r.src, r.dst, r.op, r.root, r.peer, r.viewed = viewOf(call.Src), viewOf(call.Dst), call.Op, call.Root, call.Peer, true
	}
	c.recent[call.Kind], c.filled = r, nil
}

// forget drops what is known of the latest calls.
func (c *Comm) forget() {
	clear(c.recent[:])
	c.filled = nil
	c.grouping.drop()
}

// keyFor is the key of a checked call.
func (c *Comm) keyFor(call *Call, sh *shape) planKey {
	key := planKey{kind: call.Kind, dtype: sh.dtype, count: sh.count, registered: c.registered(call), uneven: sh.uneven, inPlace: sh.inPlace}
	switch {
	case call.Kind.reduces():
		key.op = call.Op
	case call.Kind >= Send:
		key.peer = call.Peer
	}
	if call.Kind.rooted() {
		key.root = call.Root
	}
	return key
}

// planFor returns the plan of a checked call, from the cache if it is there.
func (c *Comm) planFor(call *Call, sh *shape) (*planned, error) {
	key := c.keyFor(call, sh)
	if p := c.recent[key.kind].plan; p != nil && p.key == key && (!key.uneven || p.shape.same(sh)) {
		return p, nil
	}
	if !key.uneven {
		if p := c.plans[key]; p != nil {
			return p, nil
		}
	}
	p, err := c.makePlan(key, sh)
	if err != nil {
		return nil, err
	}
	if !key.uneven {
		if len(c.plans) >= maxPlans {
			clear(c.plans)
		}
		c.plans[key] = p
	}
	return p, nil
}

func (s *shape) same(o *shape) bool { return slices.Equal(s.in, o.in) && slices.Equal(s.out, o.out) }

// makePlan chooses an algorithm and compiles its schedule for the shape.
func (c *Comm) makePlan(key planKey, sh *shape) (*planned, error) {
	if key.kind >= Send {
		p := &planned{key: key, shape: shape{in: slices.Clone(sh.in), out: slices.Clone(sh.out)}}
		return p, c.planTransfer(p, sh)
	}
	ch, err := c.choose(key)
	if err != nil {
		return nil, err
	}
	return c.compile(key, sh, ch)
}

// compile makes the plan of a choice.
func (c *Comm) compile(key planKey, sh *shape, ch choice) (*planned, error) {
	p := &planned{key: key, shape: shape{in: slices.Clone(sh.in), out: slices.Clone(sh.out)}}
	if key.kind.reduces() {
		r, err := tensor.NewReducer(key.dtype, key.op, c.size)
		if err != nil {
			return nil, invalid("%v of %v: %v", key.kind, key.dtype, err)
		}
		r.Watch(c.queue.enterOp, c.queue.leaveOp)
		p.reducer = r
	}
	s, err := ch.info.Make(c.rank, c.size, ch.shape)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrInternal, ch.info.Name, err)
	}
	if ch.channels > 1 {
		s = schedule.Channels(s, ch.channels)
	}
	if err := c.bound(&s, key, sh, &ch); err != nil {
		return nil, err
	}
	prog, err := executor.Compile(s)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrInternal, ch.info.Name, err)
	}
	lay := executor.Layout{Elem: key.dtype.Size(), Window: ch.window, Longest: sh.longest}
	if c.cfg.LendMin == 0 && key.registered {
		lay.LendMin = c.lendMin(key.kind)
	}
	if key.uneven && key.kind != AllGather && key.kind != ReduceScatter {
		// Nobody knows all lengths, so there is one window, and lengths are checked by transfer.
		lay.Window, lay.Pairwise = 0, true
	}
	if s.In > 0 {
		lay.In = p.shape.in
	}
	if s.Out > 0 {
		lay.Out = p.shape.out
	}
	p.attachMin = c.attachMin(key.kind, p.bytes())
	if err = c.bind(p, prog, lay, 0); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrInternal, ch.info.Name, err)
	}
	p.algorithm = ch.info.Name
	p.describe(describeCall(key.kind, key.op.Code(), key.dtype, uint8(ch.index), key.root, key.registered, key.count))
	p.fp = mix(mix(p.sort.A, p.sort.B), uint64(key.op.Hash())<<32|uint64(ch.window))
	p.fp = mix(p.fp, uint64(ch.channels)<<32|uint64(ch.shape.Pieces))
	if key.inPlace {
		p.fp = mix(p.fp, 1)
	}
	if key.uneven && !lay.Pairwise {
		counts := sh.out
		if key.kind == ReduceScatter {
			counts = sh.in
		}
		p.fp = hashInts(p.fp, counts)
	}
	return p, nil
}

// describe fills in what the flight recorder keeps of calls of the plan.
func (p *planned) describe(a, b uint64) {
	p.sort = &recorder.Sort{A: a, B: b, Kind: uint8(p.key.kind), Peer: p.key.peer, Bytes: p.bytes()}
}

// bytes is the length of the larger of In and Out.
func (p *planned) bytes() int {
	sum := func(blocks []int) (n int) {
		for _, v := range blocks {
			n += v
		}
		return n
	}
	return max(sum(p.shape.in), sum(p.shape.out)) * p.key.dtype.Size()
}

// bound shortens the window so that no chunk takes more segments than the links can hold without
// a deadlock (schedule.MaxSegments).
func (c *Comm) bound(s *schedule.Schedule, key planKey, sh *shape, ch *choice) error {
	segments := s.MaxSegments(c.geo.Usable())
	if segments < 1 {
		return invalid("%s runs %d chunks ahead, and links of %d slots hold only %d for certain: raise GCCL_SLOTS", ch.info.Name, s.Ahead, c.geo.Slots, c.geo.Usable()-1)
	}
	most := min(c.geo.SlotBytes, executor.PieceBytes) / key.dtype.Size()
	if segments > math.MaxInt/most {
		return nil
	}
	most *= segments
	if key.uneven && key.kind != AllGather && key.kind != ReduceScatter {
		return fmt.Errorf("%w: %s cannot carry blocks whose lengths not all ranks know", ErrInternal, ch.info.Name)
	}
	if ch.window == 0 && max(sh.longest, key.count) > most || ch.window > most {
		ch.window = most
	}
	return nil
}

// planTransfer plans a Send or Recv: one step on the lane that is kept for them.
func (c *Comm) planTransfer(p *planned, sh *shape) error {
	prog := executor.Transfer(p.key.peer, p.key.kind == Send)
	lay := executor.Layout{Elem: p.key.dtype.Size(), In: p.shape.in, Out: p.shape.out}
	p.attachMin, p.exchangeMin = c.attachMin(p.key.kind, p.bytes()), c.attachMin(exchange, p.bytes())
	if err := c.bind(p, prog, lay, c.geo.Lanes-1); err != nil {
		return fmt.Errorf("%w: %v", ErrInternal, err)
	}
	p.algorithm = "transfer"
	p.describe(describeCall(Send, 0, p.key.dtype, 0xff, 0, false, sh.count))
	p.fp = mix(p.sort.A, p.sort.B)
	return nil
}
