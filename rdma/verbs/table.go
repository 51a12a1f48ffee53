package verbs

import (
	"errors"
	"sync"
	"sync/atomic"
)

// table finds endpoints by ID without a lock. An ID is a slot's number in the lower 16 bits and how
// often the slot was used above, at least 1, so that a late completion of a closed endpoint finds nothing.
type table struct {
	slots atomic.Pointer[[]atomic.Pointer[endpoint]] // only ever replaced by a longer copy
	mu    sync.Mutex
	free  []uint32 // IDs to give out next
	next  uint32   // slots used so far
}

const slotBits = 16

// add gives e its ID.
func (t *table) add(e *endpoint) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) > 0 {
		e.id = t.free[0]
		t.free = t.free[1:]
	} else {
		if t.next == 1<<slotBits {
			return errors.New("verbs: 65536 endpoints are open")
		}
		e.id = t.next | 1<<slotBits
		t.next++
	}
	slot := int(e.id & (1<<slotBits - 1))
	var old []atomic.Pointer[endpoint]
	if p := t.slots.Load(); p != nil {
		old = *p
	}
	if slot >= len(old) {
		grown := make([]atomic.Pointer[endpoint], max(16, 2*len(old)))
		for i := range old {
			grown[i].Store(old[i].Load())
		}
		t.slots.Store(&grown)
		old = grown
	}
	old[slot].Store(e)
	return nil
}

func (t *table) remove(e *endpoint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.slots.Load())[e.id&(1<<slotBits-1)].Store(nil)
	id := e.id + 1<<slotBits
	if id < 1<<slotBits { // it has wrapped, and an ID of 0 is none
		id += 1 << slotBits
	}
	t.free = append(t.free, id)
}

// lookup returns the open endpoint of that ID, or nil.
func (t *table) lookup(id uint32) *endpoint {
	p := t.slots.Load()
	slot := int(id & (1<<slotBits - 1))
	if p == nil || slot >= len(*p) {
		return nil
	}
	if e := (*p)[slot].Load(); e != nil && e.id == id {
		return e
	}
	return nil
}

func (t *table) all() []*endpoint {
	t.mu.Lock()
	defer t.mu.Unlock()
	var es []*endpoint
	if p := t.slots.Load(); p != nil {
		for i := range *p {
			if e := (*p)[i].Load(); e != nil {
				es = append(es, e)
			}
		}
	}
	return es
}
