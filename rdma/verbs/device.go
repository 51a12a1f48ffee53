package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// latency is Attr.Latency: what network cards of the last ten years need for a small write (ib_write_lat
// of perftest, published by their vendors as 0.6 to 2 µs). An expectation; collectives measure.
const latency = 2 * time.Microsecond

// Device is one port of an RDMA device.
type Device struct {
	opts Options
	attr rdma.Attr
	port uint8
	sys  fs.FS // /sys/class/infiniband

	ctx    *ibv.Context
	pd     *ibv.PD
	limits ibv.DeviceAttr
	link   uint8
	mtu    uint8
	lid    uint16
	gids   []gid
	down   atomic.Bool // the last port event

	events *events
	keeper *keeper

	mu      sync.Mutex // guards what follows
	closed  bool
	regions map[*region]struct{}
	shared  map[span]*registration
	queues  map[*queue]struct{}
	table   table
}

var _ rdma.Device = (*Device)(nil)

func openPort(lib *ibv.Lib, name string, port uint8, o Options) (_ *Device, err error) {
	d := &Device{
		opts: o, port: port, sys: os.DirFS("/sys/class/infiniband"),
		regions: map[*region]struct{}{}, shared: map[span]*registration{}, queues: map[*queue]struct{}{},
	}
	if d.ctx, err = lib.Open(name); err != nil {
		return nil, explain(err, 0)
	}
	defer func() {
		if err != nil {
			if d.pd != nil {
				_ = d.pd.Destroy()
			}
			_ = d.ctx.Close()
		}
	}()
	if d.limits, err = d.ctx.Attr(); err != nil {
		return nil, err
	}
	p, err := d.ctx.Port(port)
	if err != nil {
		return nil, err
	}
	if p.State != ibv.PortActive {
		return nil, fmt.Errorf("port is %s, not active: is the cable in and the interface up?", ibv.PortStateName(p.State))
	}
	d.link, d.mtu, d.lid = p.LinkLayer, uint8(p.ActiveMTU), p.LID
	if d.link != ibv.LinkInfiniBand {
		d.link = ibv.LinkEthernet
	}
	all, err := d.gidTable(name, int(p.GIDTableLen))
	if err != nil {
		return nil, err
	}
	if d.gids, err = usableGIDs(all, &o, d.link == ibv.LinkEthernet); err != nil {
		return nil, err
	}
	if d.pd, err = d.ctx.NewPD(); err != nil {
		return nil, explain(err, 0)
	}
	d.attr = rdma.Attr{
		Provider: "verbs", Name: fmt.Sprintf("%s:%d", name, port), Latency: latency,
		Bandwidth:  portRate(d.sys, name, port),
		MaxMessage: int(min(p.MaxMessage, 1<<30)),
		MaxPosted:  min(o.SendDepth, int(d.limits.MaxQPWR)/2),
		Autonomous: true,
		Early:      true,
	}
	if d.attr.MaxInline, err = d.probeInline(o.Inline); err != nil {
		return nil, err
	}
	if d.keeper, err = newKeeper(d); err != nil {
		return nil, err
	}
	if d.events, err = watchEvents(d); err != nil {
		d.keeper.close()
		return nil, err
	}
	o.Logger.Sugar().Infof("verbs: opened %s, MTU %d, %.1f GB/s, inline %d, GIDs %s", d.attr.Name, 128<<d.mtu,
		d.attr.Bandwidth/1e9, d.attr.MaxInline, listGIDs(d.gids))
	return d, nil
}

// probeInline finds out how much inline data a queue pair gets, by making one. A device that refuses
// the wish is asked for half of it.
func (d *Device) probeInline(want int) (int, error) {
	cq, err := d.ctx.NewCQ(16, 1, nil)
	if err != nil {
		return 0, explain(err, 0)
	}
	defer cq.Destroy()
	for {
		qp, err := d.pd.NewQP(cq, d.capacity(64, want))
		if err == nil {
			granted := int(qp.Cap.MaxInline)
			return granted, qp.Destroy()
		}
		if want == 0 || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOMEM) {
			return 0, explain(err, 0)
		}
		want /= 2
	}
}

// capacity is what a data queue pair asks for.
func (d *Device) capacity(recvs, inline int) ibv.QPCap {
	return ibv.QPCap{
		MaxSendWR: uint32(d.attr.MaxPosted), MaxRecvWR: uint32(recvs), MaxSendSGE: 1, MaxRecvSGE: 1,
		MaxInline: uint32(inline),
	}
}

// portRate reads "100 Gb/sec (4X EDR)" in bytes per second, 0 if it is not there.
func portRate(sys fs.FS, device string, port uint8) float64 {
	b, err := fs.ReadFile(sys, fmt.Sprintf("%s/ports/%d/rate", device, port))
	if err != nil {
		return 0
	}
	var gbit float64
	if _, err := fmt.Sscanf(strings.TrimSpace(string(b)), "%g Gb/sec", &gbit); err != nil {
		return 0
	}
	return gbit * 1e9 / 8
}

// Attr describes the port.
func (d *Device) Attr() rdma.Attr { return d.attr }

func (d *Device) String() string { return d.attr.Name }

// portHint adds to a timeout's message that the port is down.
func (d *Device) portHint() string {
	if d.down.Load() {
		return " (" + d.attr.Name + " is down)"
	}
	return ""
}

func (d *Device) closedError() error { return fmt.Errorf("verbs: %w: %v", rdma.ErrClosed, d) }

// Close closes the endpoints, whose peers are told, the queues and the regions. It waits for calls
// that are inside the library; if one does not return within a second, the device stays open and Close
// returns an error.
func (d *Device) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	var gone []<-chan struct{}
	for _, e := range d.table.all() {
		_ = e.Close()
		gone = append(gone, e.guard.gone)
	}
	d.mu.Lock()
	queues := d.queues
	regions := d.regions
	d.queues, d.regions = nil, nil
	d.mu.Unlock()
	for q := range queues {
		q.shut()
		gone = append(gone, q.guard.gone)
	}
	d.events.close()
	d.keeper.close()
	deadline := time.After(time.Second)
	for _, c := range gone {
		select {
		case <-c:
		case <-deadline:
			return fmt.Errorf("verbs: %v: closed while a Post, Poll or Connect is under way: its memory is not released", d)
		}
	}
	var errs []error
	for r := range regions {
		errs = append(errs, r.release())
	}
	errs = append(errs, d.pd.Destroy(), d.ctx.Close())
	return errors.Join(errs...)
}
