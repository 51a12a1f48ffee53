package verbs

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// events watches a device's asynchronous events.
type events struct {
	file *os.File
	wg   sync.WaitGroup
}

func watchEvents(d *Device) (*events, error) {
	if err := unix.SetNonblock(d.ctx.AsyncFD, true); err != nil {
		return nil, err
	}
	f, raw, err := pollable(d.ctx.AsyncFD, "verbs events")
	if err != nil {
		return nil, err
	}
	w := &events{file: f}
	w.wg.Go(func() {
		for {
			var e ibv.Event
			var about uintptr
			err := raw.Read(func(uintptr) (ok bool) {
				e, about, ok = d.ctx.NextEvent()
				return ok
			})
			if err != nil {
				return // closed
			}
			d.handle(e, about)
		}
	})
	return w, nil
}

func (w *events) close() {
	_ = w.file.Close()
	w.wg.Wait()
}

// handle acts on an event. A port that goes down breaks nothing by itself: connections survive a short
// flap, and the timers of those that do not say so.
func (d *Device) handle(e ibv.Event, about uintptr) {
	log := d.opts.Logger.Sugar()
	switch e {
	case ibv.EventPortErr, ibv.EventPortActive:
		if uint8(about) == d.port {
			d.down.Store(e == ibv.EventPortErr)
			log.Warnf("verbs: %v: %v", d, e)
		}
	case ibv.EventQPFatal, ibv.EventQPReqErr, ibv.EventQPAccessErr:
		for _, ep := range d.table.all() {
			if ep.qp.Handle() == about {
				ep.lost(fmt.Errorf("verbs: %v: connection broken: %v: %w", ep, e, rdma.ErrPeerLost))
			}
		}
	case ibv.EventCQErr:
		d.mu.Lock()
		defer d.mu.Unlock()
		for q := range d.queues {
			if q.cq.Handle() == about {
				q.fail(fmt.Errorf("verbs: %v: completion queue overrun or broken (depth %d)", d, q.cq.Depth()))
			}
		}
	case ibv.EventDeviceFatal:
		for _, ep := range d.table.all() {
			ep.lost(fmt.Errorf("verbs: %v: device failed: %w", ep, rdma.ErrPeerLost))
		}
		log.Errorf("verbs: %v: %v", d, e)
	default:
		log.Debugf("verbs: %v: %v", d, e)
	}
}
