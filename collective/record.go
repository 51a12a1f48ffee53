package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/internal/recorder"
	"go.uber.org/zap"
)

// flight is a communicator's flight recorder. The ring belongs to whoever holds the turn, so that a call
// pays a few plain stores for it. Whoever wants to read it asks (request): the holder of the turn answers
// between two calls or, in a call, where it waits.
type flight struct {
	ring recorder.Ring
	// request is the dump that somebody waits for.
	request atomic.Pointer[dumpRequest]
	asking  sync.Mutex // one request at a time
	watch   stopper    // of the goroutine that waits for signals
	// memory is held by whoever reads the links for a dump, and by Close to say that they are gone.
	memory   sync.Mutex
	unmapped bool
	// writing is held by whoever writes a dump to its file, where kept says that a failure's is.
	writing sync.Mutex
	kept    bool
}

type dumpRequest struct {
	why  string
	done chan struct{}
	dump *recorder.Dump
}

// dumpPatience bounds how long a dump waits for a call in progress to say where it stands.
const dumpPatience = time.Second

// Dump returns the communicator's flight record as JSON: the last calls with their state, where the
// call in progress stands and for which ranks it waits, and which peers are gone. `gccl why` merges
// the dumps of all ranks. It may be called from any goroutine at any time, also after Close. It waits
// up to a second for a call in progress to come to where it can answer; the dump of one that
// does not says so.
func (c *Comm) Dump() []byte { return encodeDump(c.dump("asked")) }

func encodeDump(d *recorder.Dump) []byte {
	b, err := d.Encode()
	if err != nil {
		panic(fmt.Sprintf("collective: dump of %+v: %v", d, err)) // numbers, strings and times
	}
	return b
}

func (c *Comm) dump(why string) *recorder.Dump {
	var d *recorder.Dump
	if c.briefly(func() { d = c.snapshot(why) }) {
		return d
	}
	f := &c.flight
	f.asking.Lock()
	defer f.asking.Unlock()
	req := &dumpRequest{why: why, done: make(chan struct{})}
	f.request.Store(req)
	c.queue.aside(func() error { c.answer(); return nil }) // refused after Close, when a call in progress still answers
	if c.mesh != nil {
		c.mesh.Bell().Ring()
	}
	t := time.NewTimer(dumpPatience)
	defer t.Stop()
	select {
	case <-req.done:
		return req.dump
	case <-t.C:
	}
	if !f.request.CompareAndSwap(req, nil) {
		<-req.done // it is being answered
		return req.dump
	}
	f.memory.Lock()
	defer f.memory.Unlock()
	d = c.header(why)
	d.Silent = true
	return d
}

// answer gives a dump to who asked for one. The caller holds the turn; it may be within a call.
func (c *Comm) answer() {
	if c.flight.request.Load() == nil {
		return
	}
	if req := c.flight.request.Swap(nil); req != nil {
		req.dump = c.snapshot(req.why)
		close(req.done)
	}
}

// header is the part of a dump that anybody may read. The caller holds flight.memory.
func (c *Comm) header(why string) *recorder.Dump {
	d := &recorder.Dump{Version: recorder.Version, Epoch: fmt.Sprintf("%016x", c.epoch), Rank: c.rank, Size: c.size,
		Pid: os.Getpid(), Host: c.peers[c.rank].Host, At: time.Now(), Why: why, Closed: c.closed.Load(), Calls: []recorder.Call{}}
	if e := c.broken.Load(); e != nil {
		d.Broken = &recorder.Broken{Kind: e.Kind.Error(), Peer: e.Peer, Text: e.Error()}
	}
	for r := range c.peers {
		if r == c.rank {
			continue
		}
		p := recorder.Peer{Rank: r, Pid: c.peers[r].Pid, Host: c.peers[r].Host}
		if lp := c.mesh.Peer(r); lp != nil {
			p.Provider = lp.Provider
			if !c.flight.unmapped {
				if n := lp.Gone(); n != nil {
					p.Gone = n.Text
				}
			}
		}
		d.Peers = append(d.Peers, p)
	}
	return d
}

// snapshot is the whole dump. The caller holds the turn.
func (c *Comm) snapshot(why string) *recorder.Dump {
	c.flight.memory.Lock()
	defer c.flight.memory.Unlock()
	d := c.header(why)
	d.Seq = c.seq
	if c.flight.ring.Busy() {
		if w := c.engine.Waiting(); !w.IsZero() {
			c.flight.ring.Waited(w)
		}
	}
	if (c.flight.ring.Busy() || d.Broken != nil) && !c.flight.unmapped {
		for _, l := range c.engine.Lanes() {
			d.Lanes = append(d.Lanes, recorder.Lane{Lane: l.Lane, Step: l.Step, Steps: l.Steps, Doing: l.Doing, WaitsFor: l.WaitsFor})
		}
	}
	c.flight.ring.Each(func(n uint64, e *recorder.Entry, s recorder.State) {
		k := Kind(e.Kind)
		mine := described(e)
		call := recorder.Call{N: n, Kind: k.String(), Seq: e.Seq, Text: explain(mine, c.algorithmName),
			A: fmt.Sprintf("%016x", mine.A), B: fmt.Sprintf("%016x", mine.B), Algorithm: c.algorithmName(uint8(mine.A >> 32)), Bytes: e.Bytes, State: s}
		if k >= Send {
			peer := e.Peer
			call.Peer = &peer
			if call.Text += fmt.Sprintf(" to %d", peer); k == Recv {
				call.Text = fmt.Sprintf("%s from %d", received(explain(mine, c.algorithmName)), peer)
			}
		}
		if e.Waited != 0 {
			w := time.Unix(0, e.Waited)
			call.Waited = &w
		}
		d.Calls = append(d.Calls, call)
	})
	return d
}

// described is the description of a recorded call (describeCall).
func described(e *recorder.Entry) link.Call { return link.Call{A: e.A | uint64(e.Seq), B: e.B} }

// closeRecord ends the recorder's use of the links.
func (c *Comm) closeRecord() {
	c.flight.watch.stop()
	c.flight.memory.Lock()
	c.flight.unmapped = true
	c.flight.memory.Unlock()
}

// ended notes the end of a run. The caller holds the turn.
func (c *Comm) ended(err error) {
	if w := c.engine.Waiting(); !w.IsZero() {
		c.flight.ring.Waited(w)
	}
	c.flight.ring.End(err == nil)
}

// writeDump leaves a dump in the directory of dumps: whole or not at all, and none in the place of a failure's.
func (c *Comm) writeDump(d *recorder.Dump) {
	dir := c.cfg.DumpDir
	if dir == "" {
		if d.Why == "failure" {
			return
		}
		dir = os.TempDir()
	}
	f := &c.flight
	f.writing.Lock()
	defer f.writing.Unlock()
	if d.Why == "failure" {
		f.kept = true
	} else if f.kept { // and a failure's record, which tells how things stood then, stays
		return
	}
	name := filepath.Join(dir, fmt.Sprintf("gccl-%s-rank%d.json", d.Epoch, d.Rank))
	if err := patiently(func() error { return writeWhole(name, encodeDump(d)) }); err != nil {
		c.log.Warn("flight record not written", zap.String("file", name), zap.Error(err))
		return
	}
	c.log.Info("flight record written", zap.String("file", name), zap.String("why", d.Why))
}

// checkDumpDir warns at the start, and not when a record is wanted and lost, that none can be written.
func (c *Comm) checkDumpDir(try func(dir string) error) {
	if c.cfg.DumpDir == "" {
		return
	}
	if err := patiently(func() error { return try(c.cfg.DumpDir) }); err != nil {
		c.alarm().Warn("no flight record can be written to GCCL_DUMP_DIR", zap.Error(err))
	}
}

// tryDir makes a file in a directory and removes it.
func tryDir(dir string) error {
	f, err := os.CreateTemp(dir, "gccl-try-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// writePatience bounds how long a failing call, or a start, waits for the file system.
const writePatience = 2 * time.Second

// patiently is f, left to itself after writePatience.
func patiently(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	t := time.NewTimer(writePatience)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return context.DeadlineExceeded
	}
}

// writeWhole writes a file beside its name and then renames it, so that nobody reads half of it.
func writeWhole(name string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// stopper ends a goroutine and waits for it.
type stopper struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// start runs f until stop.
func (s *stopper) start(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel, s.done = cancel, make(chan struct{})
	go func() {
		defer close(s.done)
		f(ctx)
	}()
}

func (s *stopper) stop() {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
}
