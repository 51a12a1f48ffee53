package launch

import (
	"fmt"
	"io"
	"sync"
)

// lines serialises the output of several processes by whole lines.
type lines struct {
	mu       sync.Mutex
	out, err io.Writer
}

type lineWriter struct {
	all    *lines
	to     io.Writer
	prefix string
	rest   []byte
	cut    bool // the line goes on from one that was cut at maxLine
}

func (l *lines) writer(prefix string, toErr bool) *lineWriter {
	w := &lineWriter{all: l, to: l.out, prefix: prefix}
	if toErr {
		w.to = l.err
	}
	return w
}

// maxLine is where a line without an end is cut.
const maxLine = 64 << 10

func (w *lineWriter) Write(b []byte) (int, error) {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		i := 0
		for i < len(b) && b[i] != '\n' {
			i++
		}
		w.rest = append(w.rest, b[:i]...)
		ended := i < len(b)
		if !ended && len(w.rest) < maxLine {
			break
		}
		if len(w.rest) > 0 || !w.cut {
			w.emit()
		}
		w.cut = !ended
		if !ended {
			break
		}
		b = b[i+1:]
	}
	return n, nil
}

func (w *lineWriter) emit() {
	_, _ = fmt.Fprintf(w.to, "%s%s\n", w.prefix, w.rest)
	w.rest = w.rest[:0]
}

func (w *lineWriter) flush() {
	w.all.mu.Lock()
	defer w.all.mu.Unlock()
	if len(w.rest) > 0 {
		w.emit()
	}
}
