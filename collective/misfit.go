package collective

import (
	"errors"
	"fmt"
	"strings"
)

// misfit is why ranks cannot work together, found from their hellos alone: all ranks find the same, and
// whose fault it is.
type misfit struct {
	first *fault         // that was found: what all ranks say
	of    map[int]*fault // by rank, of those to blame; none: it is nobody's
}

func (m *misfit) Error() string { return m.first.Error() }

// Unwrap returns what all ranks say.
func (m *misfit) Unwrap() error { return m.first }

// blame notes that a rank does not fit.
func (m *misfit) blame(rank int, kind error, format string, args ...any) {
	f := faultOf(fmt.Errorf("%w: %s", kind, fmt.Sprintf(format, args...)))
	if m.of == nil {
		m.of = map[int]*fault{}
	}
	if m.of[rank] = f; m.first == nil {
		m.first = f
	}
}

// blames reports whether it is this rank's fault.
func (m *misfit) blames(rank int) bool { return m.of[rank] != nil }

// orNil returns the misfit, if it is one.
func (m *misfit) orNil() error {
	if m.first == nil {
		return nil
	}
	return m
}

// nobodys is a misfit of all ranks together.
func nobodys(err error) error { return &misfit{first: faultOf(err)} }

// refusals are the faults of those newcomers, from rank former on, for whom it is no use to try again. If one
// of the ranks before does not fit, nothing is known of the newcomers.
func refusals(err error, former int) map[int]*fault {
	var m *misfit
	if !errors.As(err, &m) {
		return nil
	}
	for r := range m.of {
		if r < former {
			return nil
		}
	}
	return m.of
}

// apart finds the newcomers, from rank former on, that nothing connects with a rank before them.
func apart(hs []hello, former int) error {
	var wrong misfit
	for r := max(1, former); r < len(hs); r++ {
		for q := range r {
			a, b := &hs[q], &hs[r]
			if !wrong.blames(q) && between(hs[0].Providers, a, b) == "" {
				wrong.blame(r, ErrUnavailable, "nothing connects rank %d (%s) and rank %d (%s): they have %s and %s",
					q, a.Host, r, b.Host, strings.Join(a.Providers, ", "), strings.Join(b.Providers, ", "))
				break
			}
		}
	}
	return wrong.orNil()
}

// fault is a reason that can be told to other ranks.
type fault struct {
	Kind string `json:"kind"` // one of faultKinds
	Why  string `json:"why"`
}

func (f *fault) Error() string { return f.Why }

// faultKinds are the kinds of errors that others can tell apart in a fault; all else are as of a rank that
// gave up.
var faultKinds = []struct {
	name string
	err  error
}{
	{"mismatch", ErrMismatch}, {"invalid", ErrInvalid}, {"unavailable", ErrUnavailable}, {"peer lost", ErrPeerLost},
	{"internal", ErrInternal}, {"gave up", ErrGaveUp},
}

// Unwrap returns the kind.
func (f *fault) Unwrap() error {
	for _, k := range faultKinds {
		if k.name == f.Kind {
			return k.err
		}
	}
	return ErrGaveUp
}

// mostWhy bounds in bytes what is told of a failure, so that a message with it is short enough for a contact, however
// many of its characters JSON escapes.
const mostWhy = 4 << 10

// told is a text as others are told it: its beginning, up to the end of a character.
func told(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostWhy)], "") }

// faultOf is an error as others are told it.
func faultOf(err error) *fault {
	f := &fault{Why: told(err.Error())}
	for _, k := range faultKinds {
		if f.Kind = k.name; errors.Is(err, k.err) {
			break
		}
	}
	return f
}

// unable is why this rank cannot take part, whoever the others are.
type unable struct{ error }

// Unwrap returns the reason.
func (e *unable) Unwrap() error { return e.error }
