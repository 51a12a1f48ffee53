//go:build linux

package shm

import (
	"fmt"
	"sync/atomic"

	"github.com/gccl/gccl/internal/hostmem"
	"github.com/gccl/gccl/rdma"
)

// maxMappings bounds how many peers' regions a device maps at once; the kernel allows a process
// 65,530 mappings of all sorts by default (vm.max_map_count).
const maxMappings = 16384

// mapKey names a peer's region among all peers.
type mapKey struct {
	peer name
	key  uint64
}

// remoteMap is a peer's region in this process, shared by the device's endpoints.
type remoteMap struct {
	id    mapKey
	mem   *hostmem.Block
	b     []byte
	state *atomic.Uint64 // not zero: the owner has closed the region
	refs  int            // guarded by Device.mu
}

// mapped returns the device's mapping of a peer's region, with one more reference, or nil.
func (d *Device) mapped(id mapKey) *remoteMap {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.mappings[id]
	if m != nil {
		m.refs++
	}
	return m
}

// mapRegion maps a region of n bytes by its descriptor, which stays the caller's, and returns it with
// a reference.
func (d *Device) mapRegion(id mapKey, fd int, n uint64) (*remoteMap, error) {
	if n > 1<<46 {
		return nil, fmt.Errorf("shm: peer's region of %d bytes is impossible: %w", n, rdma.ErrAccess)
	}
	state, total := regionFileBytes(int(n))
	mem, err := hostmem.MapShared(fd, total, "shm peers' regions")
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	b := mem.Bytes()
	fresh := &remoteMap{id: id, mem: mem, b: b[:n:n], state: hostmem.Word64(b, state), refs: 1}
	d.mu.Lock()
	m, err := d.insert(fresh)
	d.mu.Unlock()
	if m != fresh {
		_ = mem.Close()
	}
	return m, err
}

// insert adds a mapping, or returns the one that another endpoint has added meanwhile.
func (d *Device) insert(fresh *remoteMap) (*remoteMap, error) {
	if m := d.mappings[fresh.id]; m != nil {
		m.refs++
		return m, nil
	}
	switch {
	case d.closed:
		return nil, errDeviceClosed
	case len(d.mappings) >= maxMappings:
		return nil, fmt.Errorf("shm: %d regions of peers are mapped, the most a device holds", maxMappings)
	}
	d.mappings[fresh.id] = fresh
	return fresh, nil
}

// unref gives a reference back; the last one unmaps.
func (d *Device) unref(m *remoteMap) {
	d.mu.Lock()
	m.refs--
	last := m.refs == 0
	if last {
		delete(d.mappings, m.id)
	}
	d.mu.Unlock()
	if last {
		_ = m.mem.Close()
	}
}
