package ibv

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Context is an open device. Its methods may be called from any goroutine, until Close.
type Context struct {
	lib     *Lib
	h       uintptr
	AsyncFD int // readable when NextEvent has something

	pollCQ, reqNotifyCQ, postSend, postRecv uintptr

	mu      sync.Mutex // guards the out-parameters of queries
	arena   *Arena
	devAttr []DeviceAttr
	port    []PortAttr
	init    []QPInitAttr

	event []asyncEvent // one goroutine reads events
}

// Open opens the device of that name.
func (l *Lib) Open(name string) (*Context, error) {
	a, err := NewArena(Bytes[DeviceAttr](1) + Bytes[PortAttr](2) + Bytes[QPInitAttr](1) + Bytes[asyncEvent](1))
	if err != nil {
		return nil, err
	}
	c := &Context{
		lib: l, arena: a, devAttr: Carve[DeviceAttr](a, 1), port: Carve[PortAttr](a, 2),
		init: Carve[QPInitAttr](a, 1), event: Carve[asyncEvent](a, 1),
	}
	var openErr error
	err = l.each(func(dev uintptr, n string) bool {
		if n != name {
			return true
		}
		c.h, openErr = l.pointer("ibv_open_device", l.openDevice, dev)
		return false
	})
	if err == nil {
		err = openErr
	}
	if err == nil && c.h == 0 {
		err = fmt.Errorf("no device %q", name)
	}
	if err != nil {
		a.Free()
		return nil, err
	}
	c.pollCQ, c.reqNotifyCQ = peek[uintptr](c.h, ctxPollCQ), peek[uintptr](c.h, ctxReqNotifyCQ)
	c.postSend, c.postRecv = peek[uintptr](c.h, ctxPostSend), peek[uintptr](c.h, ctxPostRecv)
	c.AsyncFD = int(peek[int32](c.h, ctxAsyncFD))
	return c, nil
}

// Close closes the device. Everything made from it must have been destroyed.
func (c *Context) Close() error {
	err := number("ibv_close_device", c.lib.closeDevice, c.h)
	c.arena.Free()
	return err
}

// Attr asks for the device's limits.
func (c *Context) Attr() (DeviceAttr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := number("ibv_query_device", c.lib.queryDevice, c.h, Addr(c.devAttr))
	return c.devAttr[0], err
}

// Port asks for the state of a port, counted from 1.
func (c *Context) Port(n uint8) (PortAttr, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := number("ibv_query_port", c.lib.queryPort, c.h, uintptr(n), Addr(c.port))
	return c.port[0], err
}

// GIDs reads the filled entries of all ports' GID tables in one call; false if the library is too old.
func (c *Context) GIDs(max int) ([]GIDEntry, bool, error) {
	if c.lib.queryGIDTable == 0 {
		return nil, false, nil
	}
	a, err := NewArena(Bytes[GIDEntry](max))
	if err != nil {
		return nil, true, err
	}
	defer a.Free()
	t := Carve[GIDEntry](a, max)
	n := int(call(c.lib.queryGIDTable, []uintptr{c.h, Addr(t), uintptr(max), 0, sizeofGIDEntry}))
	if n < 0 {
		return nil, true, fmt.Errorf("ibv_query_gid_table: %w", unix.Errno(-n))
	}
	return append([]GIDEntry(nil), t[:n]...), true, nil
}

// NextEvent takes an asynchronous event; false if there is none (AsyncFD being non-blocking). What it
// is about is the handle of a QP or CQ, or a port number. One goroutine at a time.
func (c *Context) NextEvent() (e Event, about uintptr, ok bool) {
	if int32(call(c.lib.getAsyncEvent, []uintptr{c.h, Addr(c.event)})) != 0 {
		return 0, 0, false
	}
	e, about = c.event[0].Type, c.event[0].Element
	if e >= EventDeviceFatal && e <= 13 || e >= 17 && e <= 18 { // about a port: the union holds an int
		about &= 0xffffffff
	}
	call(c.lib.ackAsyncEvent, []uintptr{Addr(c.event)})
	return e, about, true
}

// PD is a protection domain.
type PD struct {
	c *Context
	h uintptr
}

// NewPD makes a protection domain.
func (c *Context) NewPD() (*PD, error) {
	h, err := c.lib.pointer("ibv_alloc_pd", c.lib.allocPD, c.h)
	if err != nil {
		return nil, err
	}
	return &PD{c, h}, nil
}

// Destroy frees the domain; it must be empty.
func (p *PD) Destroy() error { return number("ibv_dealloc_pd", p.c.lib.deallocPD, p.h) }

// MR is a registered memory region.
type MR struct {
	c          *Context
	h          uintptr
	LKey, RKey uint32
}

// NewMR registers n bytes at addr, which stay mapped until Destroy.
func (p *PD) NewMR(addr uintptr, n int, access uint32) (*MR, error) {
	l := p.c.lib
	var h uintptr
	var err error
	if access&AccessRelaxedOrdering != 0 && l.regMRIova2 != 0 { // clears optional bits that the kernel lacks
		h, err = l.pointer("ibv_reg_mr_iova2", l.regMRIova2, p.h, addr, uintptr(n), addr, uintptr(access))
	} else {
		h, err = l.pointer("ibv_reg_mr", l.regMR, p.h, addr, uintptr(n), uintptr(access&^AccessRelaxedOrdering))
	}
	if err != nil {
		return nil, err
	}
	return &MR{p.c, h, peek[uint32](h, mrLKey), peek[uint32](h, mrRKey)}, nil
}

// NewDMABufMR registers n bytes of a dma-buf from offset, which work requests and peers address from addr. The
// descriptor is not needed afterwards. ok is false if the library is too old.
func (p *PD) NewDMABufMR(fd int, offset, addr uint64, n int, access uint32) (m *MR, ok bool, err error) {
	l := p.c.lib
	if l.regDMABufMR == 0 {
		return nil, false, nil
	}
	h, err := l.pointer("ibv_reg_dmabuf_mr", l.regDMABufMR, p.h, uintptr(offset), uintptr(n), uintptr(addr), uintptr(fd), uintptr(access))
	if err != nil {
		return nil, true, err
	}
	return &MR{p.c, h, peek[uint32](h, mrLKey), peek[uint32](h, mrRKey)}, true, nil
}

// Destroy invalidates the region's keys.
func (m *MR) Destroy() error { return number("ibv_dereg_mr", m.c.lib.deregMR, m.h) }

// Channel is a completion channel.
type Channel struct {
	c     *Context
	h     uintptr
	FD    int // readable when Next has something; non-blocking
	arena *Arena
	out   []uintptr // cq, context
	args  [3]uintptr
	ack   [2]uintptr
}

// NewChannel makes a completion channel whose descriptor does not block.
func (c *Context) NewChannel() (*Channel, error) {
	a, err := NewArena(Bytes[uintptr](2))
	if err != nil {
		return nil, err
	}
	h, err := c.lib.pointer("ibv_create_comp_channel", c.lib.createChannel, c.h)
	if err != nil {
		a.Free()
		return nil, err
	}
	ch := &Channel{c: c, h: h, FD: int(peek[int32](h, channelFD)), arena: a, out: Carve[uintptr](a, 2)}
	ch.args = [3]uintptr{h, Addr(ch.out), Addr(ch.out[1:])}
	ch.ack[1] = 1
	if err := unix.SetNonblock(ch.FD, true); err != nil {
		ch.Destroy()
		return nil, err
	}
	return ch, nil
}

// Next takes and acknowledges one event; false if there is none. One goroutine at a time.
func (ch *Channel) Next() bool {
	if int32(call(ch.c.lib.getCQEvent, ch.args[:])) != 0 {
		return false
	}
	ch.ack[0] = ch.out[0]
	call(ch.c.lib.ackCQEvents, ch.ack[:])
	return true
}

// Destroy frees the channel; no CQ may use it.
func (ch *Channel) Destroy() error {
	err := number("ibv_destroy_comp_channel", ch.c.lib.destroyChannel, ch.h)
	ch.arena.Free()
	return err
}
