package collective

import (
	"slices"
	"sync"

	"github.com/gccl/gccl/collective/tuner"
)

// shared is what ranks that are goroutines of one process find out once for all of them: what follows
// from the hellos alone, which are the same on every rank. With very many ranks it would else take time and
// memory with the square of their number. A nil shared finds out everything anew.
type shared struct {
	mu      sync.Mutex
	peersOf latest[string, sharedPeers] // by rank 0's hello, which has a random number in it
	tunerOf latest[uint64, sharedTuner] // by the epoch, which is that number
}

// latest is what some ranks of a communicator may still ask for, of the latest communicators only: of one that fails half-way, or has ranks of
// other processes, not all ask. The zero latest is empty.
type latest[K comparable, V any] struct {
	of    map[K]*V
	order []K
}

// latestMost is of how many communicators.
const latestMost = 16

// get returns what is there under a key, or makes it.
func (l *latest[K, V]) get(key K) *V {
	e := l.of[key]
	if e == nil {
		if l.of == nil {
			l.of = map[K]*V{}
		}
		if len(l.order) == latestMost {
			l.drop(l.order[0])
		}
		e = new(V)
		l.of[key], l.order = e, append(l.order, key)
	}
	return e
}

func (l *latest[K, V]) drop(key K) {
	delete(l.of, key)
	l.order = slices.DeleteFunc(l.order, func(k K) bool { return k == key })
}

type sharedPeers struct {
	once sync.Once
	list []hello // not to be changed
	err  error
	uses int
}

type sharedTuner struct {
	once  sync.Once
	hosts []int // not to be changed
	made  *tuner.Tuner
	err   error
	uses  int
}

// peers reads the ranks' hellos.
func (s *shared) peers(blobs [][]byte) ([]hello, error) {
	if s == nil || len(blobs[0]) == 0 {
		return decodeHellos(blobs)
	}
	s.mu.Lock()
	key := string(blobs[0])
	e := s.peersOf.get(key)
	if e.uses++; e.uses == len(blobs) {
		s.peersOf.drop(key)
	}
	s.mu.Unlock()
	e.once.Do(func() { e.list, e.err = decodeHellos(blobs) })
	return e.list, e.err
}

// tune makes a communicator's tuner.
func (s *shared) tune(c *Comm) (err error) {
	if s == nil {
		c.tuning.hosts, c.tuning.tuner, err = c.newTuner()
		return err
	}
	s.mu.Lock()
	e := s.tunerOf.get(c.epoch)
	if e.uses++; e.uses == c.size {
		s.tunerOf.drop(c.epoch)
	}
	s.mu.Unlock()
	e.once.Do(func() { e.hosts, e.made, e.err = c.newTuner() })
	c.tuning.hosts, c.tuning.tuner = e.hosts, e.made
	return e.err
}
