package executor

import "github.com/gccl/gccl/schedule"

// Stage brings a run's In into the buffer window by window while the run goes on, and takes Out away
// again: for tensors that are in an accelerator's memory. A run without one has In in place when it begins.
//
// A window is the same part of every block (see Plan.Spans); no step reads bytes of In, or writes bytes of Out,
// that belong to another window than its own. That holds for In and Out in one buffer, too.
type Stage interface {
	// Begin reports whether window w of In is in place. No lane enters a window before it is. It is
	// polled, and must not block. An error ends the run.
	Begin(w int) (bool, error)
	// End says that window w of Out is complete and will not be touched again; windows end in order.
	// A run whose lanes have nothing to do ends none.
	End(w int) error
}

// Spans calls f with what window w takes of each block of In or Out: offset and length in bytes. Empty
// parts are left out.
func (p *Plan) Spans(b schedule.Buf, w int, f func(off, n int)) {
	counts, chunks := p.Layout.In, p.Program.Schedule.In
	if b == schedule.Out {
		counts, chunks = p.Layout.Out, p.Program.Schedule.Out
	}
	off := 0
	for _, c := range counts {
		size := c * p.Layout.Elem
		lo, hi := 0, size
		if p.windows > 1 {
			per := p.Layout.Window * (chunks / len(counts)) * p.Layout.Elem
			lo, hi = min(w*per, size), min((w+1)*per, size)
		}
		if hi > lo {
			f(off+lo, hi-lo)
		}
		off += size
	}
}

// staged reports whether a lane may enter its window.
func (e *Engine) staged(l *lane) (bool, error) {
	ok, err := l.job.Args.Stage.Begin(l.window)
	l.held = !ok
	return ok, err
}

// passed tells the job's stage of the windows that all of its lanes have left.
func (e *Engine) passed(j *Job, first int) error {
	least := j.Plan.windows
	for i := range j.Plan.lanes {
		if l := &e.lanes[first+i]; !l.over {
			least = min(least, l.window)
		}
	}
	for ; j.ended < least; j.ended++ {
		if err := j.Args.Stage.End(j.ended); err != nil {
			return err
		}
	}
	return nil
}

// Held reports whether some lane waits for its stage.
func (e *Engine) Held() bool {
	for i := range e.lanes {
		if l := &e.lanes[i]; l.live() && l.held {
			return true
		}
	}
	return false
}
