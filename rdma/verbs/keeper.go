package verbs

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// keeper runs a device's control queue pairs: one goroutine, one completion queue. mu guards all of
// their state.
type keeper struct {
	dev  *Device
	cq   *ibv.CQ
	ch   *ibv.Channel
	file *os.File // ch's descriptor
	raw  syscall.RawConn
	room deepener
	done chan struct{}

	mu       sync.Mutex
	controls map[uint32]*control
	next     uint32
	closing  time.Time // when not zero: the end, whatever is left then
	actions  []func()  // to run without mu
}

// How long a closing endpoint's last message may take, and all of a closing device's together.
const (
	linger       = time.Second
	lingerDevice = 50 * time.Millisecond
)

func newKeeper(d *Device) (*keeper, error) {
	k := &keeper{dev: d, done: make(chan struct{}), controls: map[uint32]*control{}}
	var err error
	if k.ch, err = d.ctx.NewChannel(); err != nil {
		return nil, explain(err, 0)
	}
	if k.cq, err = d.ctx.NewCQ(min(1024, int(d.limits.MaxCQE)), pollBatch, k.ch); err != nil {
		_ = k.ch.Destroy()
		return nil, explain(err, 1<<16)
	}
	if k.file, k.raw, err = pollable(k.ch.FD, "completion channel"); err != nil {
		_ = k.cq.Destroy()
		_ = k.ch.Destroy()
		return nil, explain(err, 0)
	}
	k.room = deepener{cq: k.cq, limit: int(d.limits.MaxCQE)}
	go k.run()
	return k, nil
}

// close lets last messages out and ends the goroutine.
func (k *keeper) close() {
	k.mu.Lock()
	k.closing = time.Now().Add(lingerDevice)
	k.wakeLocked()
	k.mu.Unlock()
	<-k.done
}

// wakeLocked has the goroutine look again.
func (k *keeper) wakeLocked() { _ = k.file.SetReadDeadline(time.Unix(1, 0)) }

func (k *keeper) run() {
	defer close(k.done)
	var err error
	for err == nil && k.step() {
		err = k.raw.Read(func(uintptr) bool { return k.ch.Next() })
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = nil
		}
	}
	if err != nil {
		k.dev.opts.Logger.Sugar().Errorf("verbs: %v: keeper: %v", k.dev, err)
	}
	k.mu.Lock()
	for _, c := range k.controls {
		c.destroyLocked()
	}
	k.mu.Unlock()
	_ = k.cq.Destroy()
	_ = k.file.Close()
	_ = k.ch.Destroy()
}

// step looks at everything once and sets the time to look again; false at the end.
func (k *keeper) step() bool {
	k.mu.Lock()
	if err := k.cq.Arm(); err != nil {
		k.dev.opts.Logger.Sugar().Errorf("verbs: %v: keeper: %v", k.dev, err)
	}
	k.drainLocked()
	now := time.Now()
	wake := k.closing
	for _, c := range k.controls {
		if t := c.tickLocked(now); !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	more := k.closing.IsZero() || len(k.controls) > 0 && now.Before(k.closing)
	_ = k.file.SetReadDeadline(wake)
	actions := k.actions
	k.actions = nil
	k.mu.Unlock()
	for _, f := range actions {
		f()
	}
	return more
}

// drainLocked handles all completions.
func (k *keeper) drainLocked() {
	for {
		n, err := k.cq.Poll(pollBatch)
		if err != nil {
			k.dev.opts.Logger.Sugar().Errorf("verbs: %v: keeper: %v", k.dev, err)
		}
		if n == 0 {
			return
		}
		for i := range k.cq.WC[:n] {
			wc := k.cq.WC[i]
			if c := k.controls[uint32(wc.ID>>32)]; c != nil {
				c.completedLocked(&wc)
			}
		}
	}
}

// newControl makes the control queue pair of an endpoint.
func (k *keeper) newControl(e *endpoint) (_ *control, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closing.IsZero() {
		return nil, k.dev.closedError()
	}
	if err := k.room.reserve(controlSends + controlRecvs); err != nil {
		return nil, fmt.Errorf("control queue: %w", err)
	}
	k.next++
	c := &control{k: k, e: e, key: k.next, psn: randomPSN()}
	defer func() {
		if err != nil {
			c.destroyLocked()
		}
	}()
	c.qp, err = k.dev.pd.NewQP(k.cq, ibv.QPCap{MaxSendWR: controlSends, MaxRecvWR: controlRecvs, MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		return nil, explain(err, 1<<14)
	}
	if c.send, err = c.qp.NewSender(1, 0); err != nil {
		return nil, err
	}
	if c.recv, err = c.qp.NewReceiver(1, uint64(c.key)<<32|uint64(imReceive)); err != nil {
		return nil, err
	}
	if err = c.initLocked(); err != nil {
		return nil, err
	}
	k.controls[c.key] = c
	return c, nil
}
