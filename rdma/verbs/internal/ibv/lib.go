// Package ibv binds libibverbs without cgo: the library is opened at run time, so that one program
// runs with and without it. It is a thin layer of C's calls, structures and error numbers; policy is
// the verbs package's.
//
// Everything that C sees lies in an Arena. The calls of the data path (post, poll, arm) go through the
// function pointers in struct ibv_context, as the inline functions of <infiniband/verbs.h> do, with
// argument lists made once, and allocate nothing.
package ibv

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Lib is the loaded library.
type Lib struct {
	getDeviceList, freeDeviceList, getDeviceName, openDevice, closeDevice uintptr
	queryDevice, queryPort, getAsyncEvent, ackAsyncEvent                  uintptr
	allocPD, deallocPD, regMR, regMRIova2, deregMR                        uintptr
	createChannel, destroyChannel, getCQEvent, ackCQEvents                uintptr
	createCQ, resizeCQ, destroyCQ                                         uintptr
	createQP, modifyQP, destroyQP                                         uintptr
	queryGIDTable                                                         uintptr // since rdma-core 32
	regDMABufMR                                                           uintptr // since rdma-core 34
	errnoLocation                                                         uintptr
}

// ErrBuild is Load's error in programs that cannot open the library.
var ErrBuild = errors.New("built without verbs: " + runtime.GOOS + "/" + runtime.GOARCH + ", or build tag noverbs")

// Load opens libibverbs.so.1, once in a process; the library is never unloaded.
var Load = sync.OnceValues(load)

func load() (*Lib, error) {
	runtime.LockOSThread() // what dlopen has to say of its failure, it says to the thread
	defer runtime.UnlockOSThread()
	h, err := dlopen("libibverbs.so.1")
	if err != nil {
		return nil, err
	}
	l := new(Lib)
	for _, s := range []struct {
		to       *uintptr
		name     string
		optional bool
	}{
		{&l.getDeviceList, "ibv_get_device_list", false},
		{&l.freeDeviceList, "ibv_free_device_list", false},
		{&l.getDeviceName, "ibv_get_device_name", false},
		{&l.openDevice, "ibv_open_device", false},
		{&l.closeDevice, "ibv_close_device", false},
		{&l.queryDevice, "ibv_query_device", false},
		{&l.queryPort, "ibv_query_port", false},
		{&l.queryGIDTable, "_ibv_query_gid_table", true},
		{&l.getAsyncEvent, "ibv_get_async_event", false},
		{&l.ackAsyncEvent, "ibv_ack_async_event", false},
		{&l.allocPD, "ibv_alloc_pd", false},
		{&l.deallocPD, "ibv_dealloc_pd", false},
		{&l.regMR, "ibv_reg_mr", false},
		{&l.regMRIova2, "ibv_reg_mr_iova2", true},
		{&l.regDMABufMR, "ibv_reg_dmabuf_mr", true},
		{&l.deregMR, "ibv_dereg_mr", false},
		{&l.createChannel, "ibv_create_comp_channel", false},
		{&l.destroyChannel, "ibv_destroy_comp_channel", false},
		{&l.getCQEvent, "ibv_get_cq_event", false},
		{&l.ackCQEvents, "ibv_ack_cq_events", false},
		{&l.createCQ, "ibv_create_cq", false},
		{&l.resizeCQ, "ibv_resize_cq", false},
		{&l.destroyCQ, "ibv_destroy_cq", false},
		{&l.createQP, "ibv_create_qp", false},
		{&l.modifyQP, "ibv_modify_qp", false},
		{&l.destroyQP, "ibv_destroy_qp", false},
	} {
		if *s.to, err = dlsym(h, s.name); err != nil && !s.optional {
			return nil, err
		}
	}
	c, err := dlopen("libc.so.6")
	if err != nil {
		return nil, err
	}
	if l.errnoLocation, err = dlsym(c, "__errno_location"); err != nil {
		return nil, err
	}
	return l, nil
}

// pointer calls a function that returns a pointer, or NULL with errno set. errno belongs to the
// thread, so the goroutine stays on it until errno is read.
func (l *Lib) pointer(what string, fn uintptr, args ...uintptr) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r := call(fn, args)
	if r == 0 {
		return 0, fmt.Errorf("%s: %w", what, unix.Errno(peek[int32](call(l.errnoLocation, nil), 0)))
	}
	return r, nil
}

// number calls a function that returns 0 or an error number.
func number(what string, fn uintptr, args ...uintptr) error {
	if r := int32(call(fn, args)); r != 0 {
		return fmt.Errorf("%s: %w", what, unix.Errno(r))
	}
	return nil
}

// Names lists the devices that have a driver in the library. There may be none.
func (l *Lib) Names() ([]string, error) {
	var names []string
	err := l.each(func(_ uintptr, name string) bool {
		names = append(names, name)
		return true
	})
	return names, err
}

// each calls f with each device until f returns false. The handles are valid during the call.
func (l *Lib) each(f func(dev uintptr, name string) bool) error {
	a, err := NewArena(64)
	if err != nil {
		return err
	}
	defer a.Free()
	n := Carve[int32](a, 1)
	list, err := l.pointer("ibv_get_device_list", l.getDeviceList, Addr(n))
	if err != nil {
		return err
	}
	defer call(l.freeDeviceList, []uintptr{list})
	for i := range uintptr(n[0]) {
		dev := peek[uintptr](list, i*8)
		if !f(dev, cstring(call(l.getDeviceName, []uintptr{dev}))) {
			break
		}
	}
	return nil
}
