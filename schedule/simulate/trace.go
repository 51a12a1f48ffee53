package simulate

import (
	"bufio"
	"fmt"
	"io"
)

// Trace collects what every lane did when. It grows with ranks and steps; use it for a few ranks.
type Trace struct {
	spans []traced
}

type traced struct {
	rank, lane, step, steps, window int32
	name                            string
	begin, end                      float64
}

func (t *Trace) add(e *engine, l int32, ln *laneState, begin, end float64) {
	prog := &e.prog.lanes[l]
	name := ""
	for i := ln.first; i < prog.groups[ln.group]; i++ {
		st := &prog.steps[i]
		if name != "" {
			name += ", "
		}
		name += st.op.String()
		if st.link >= 0 {
			k := &e.prog.links[st.link]
			if k.from == prog.rank {
				name += fmt.Sprintf(" to %d", k.to)
			} else {
				name += fmt.Sprintf(" from %d", k.from)
			}
		}
	}
	t.spans = append(t.spans, traced{
		rank: prog.rank, lane: prog.index, step: ln.first, steps: prog.groups[ln.group] - ln.first,
		window: ln.window, name: name, begin: begin, end: end,
	})
}

// WriteChrome writes the trace in the Trace Event Format of chrome://tracing and Perfetto, one
// process a rank and one thread a lane. Times are microseconds.
func (t *Trace) WriteChrome(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, `{"displayTimeUnit":"ns","traceEvents":[`)
	sep := "\n"
	for _, s := range t.spans {
		fmt.Fprintf(b, `%s{"ph":"X","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"name":%q,"args":{"window":%d,"step":%d,"steps":%d}}`,
			sep, s.rank, s.lane, 1e6*s.begin, 1e6*(s.end-s.begin), s.name, s.window, s.step, s.steps)
		sep = ",\n"
	}
	fmt.Fprint(b, "\n]}\n")
	if err := b.Flush(); err != nil {
		return fmt.Errorf("simulate: write trace: %w", err)
	}
	return nil
}
