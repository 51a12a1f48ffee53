//go:build cuda

package cuda

import (
	"errors"

	"github.com/gccl/gccl/internal/hostmem"
)

// Stream is a queue of copies between a device and pinned host memory, which run one after another beside
// the program. One goroutine at a time uses it.
type Stream struct {
	v *Device
	h uintptr
}

// Event is a mark in a stream.
type Event struct {
	v *Device
	h uintptr
}

// NewStream makes a stream that no other stream is ordered with.
func (v *Device) NewStream() (*Stream, error) {
	h, err := v.make("cuStreamCreate", v.d.funcs.streamCreate, streamNonBlocking)
	if err != nil {
		return nil, err
	}
	return &Stream{v, h}, nil
}

// NewEvent makes an event.
func (v *Device) NewEvent() (*Event, error) {
	h, err := v.make("cuEventCreate", v.d.funcs.eventCreate, eventNoTiming)
	if err != nil {
		return nil, err
	}
	return &Event{v, h}, nil
}

func (v *Device) make(what string, fn uintptr, args ...uintptr) (h uintptr, err error) {
	err = v.inside(func() error {
		x, err := v.d.ask(what, fn, args...)
		h = uintptr(x)
		return err
	})
	return h, err
}

// After has the stream wait for what another stream of the device holds now: its handle, 0 being the default
// stream. mark is used for it.
func (s *Stream) After(other uintptr, mark *Event) error {
	f := &s.v.d.funcs
	if err := s.v.do("cuEventRecord", f.eventRecord, mark.h, other); err != nil {
		return err
	}
	return s.v.do("cuStreamWaitEvent", f.streamWaitEvent, s.h, mark.h, 0)
}

// ToHost queues a copy from the device. dst is pinned memory.
func (s *Stream) ToHost(dst []byte, src uint64) error {
	return s.v.do("cuMemcpyDtoHAsync", s.v.d.funcs.memcpyToHost, hostmem.Addr(dst), uintptr(src), uintptr(len(dst)), s.h)
}

// ToDevice queues a copy to the device. src is pinned memory.
func (s *Stream) ToDevice(dst uint64, src []byte) error {
	return s.v.do("cuMemcpyHtoDAsync", s.v.d.funcs.memcpyToDevice, uintptr(dst), hostmem.Addr(src), uintptr(len(src)), s.h)
}

// Mark puts the event behind what the stream holds.
func (s *Stream) Mark(e *Event) error {
	return s.v.do("cuEventRecord", s.v.d.funcs.eventRecord, e.h, s.h)
}

// Destroy gives the stream back; copies that it holds still run.
func (s *Stream) Destroy() error {
	return s.v.do("cuStreamDestroy", s.v.d.funcs.streamDestroy, s.h)
}

// Done reports whether what was before the mark has run. The error is that of the device, which may come from
// any work on it.
func (e *Event) Done() (bool, error) {
	err := e.v.do("cuEventQuery", e.v.d.funcs.eventQuery, e.h)
	if errors.Is(err, NotReady) {
		return false, nil
	}
	return err == nil, err
}

// Destroy gives the event back.
func (e *Event) Destroy() error {
	return e.v.do("cuEventDestroy", e.v.d.funcs.eventDestroy, e.h)
}
