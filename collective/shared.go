package collective

import (
	"sync"

	"github.com/gccl/gccl/collective/tuner"
)

// shared is what ranks that are goroutines of one process find out once for all of them: what follows
// from the hellos alone, which are the same on every rank. With very many ranks it would else take time and
// memory with the square of their number. A nil shared finds out everything anew.
type shared struct {
	mu      sync.Mutex
	peersOf map[string]*sharedPeers // by rank 0's hello, which has a random number in it
	tunerOf map[uint64]*sharedTuner // by the epoch, which is that number
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
	e := s.peersOf[key]
	if e == nil {
		e = &sharedPeers{}
		s.peersOf[key] = e
	}
	if e.uses++; e.uses == len(blobs) {
		delete(s.peersOf, key)
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
	e := s.tunerOf[c.epoch]
	if e == nil {
		e = &sharedTuner{}
		s.tunerOf[c.epoch] = e
	}
	if e.uses++; e.uses == c.size {
		delete(s.tunerOf, c.epoch)
	}
	s.mu.Unlock()
	e.once.Do(func() { e.hosts, e.made, e.err = c.newTuner() })
	c.tuning.hosts, c.tuning.tuner = e.hosts, e.made
	return e.err
}
