//go:build linux

package shm

import "sync/atomic"

// lease keeps memory that several goroutines use until it is closed and the last of them is done.
// Nobody waits: whoever comes last frees. It costs two atomic additions a use.
type lease struct {
	n    atomic.Int64 // users, plus leaseClosed once closed
	free func()       // may be called again, by a user that comes too late
}

const leaseClosed = 1 << 62

// acquire begins a use; false means that the lease is closed and nothing may be touched.
func (l *lease) acquire() bool {
	if l.n.Add(1) < leaseClosed {
		return true
	}
	l.release()
	return false
}

// release ends a use.
func (l *lease) release() {
	if l.n.Add(-1) == leaseClosed {
		l.free()
	}
}

// close lets no more users in.
func (l *lease) close() {
	if l.n.Or(leaseClosed) == 0 {
		l.free()
	}
}

// over tells whether a closed lease has no users left.
func (l *lease) over() bool { return l.n.Load() == leaseClosed }
