package direct

import "github.com/gccl/gccl/schedule"

// cyclic calls f with the one or two spans that make up count chunks of b from first on, counted
// modulo size. Two ranks that name the same chunks of the same number get the same division, so
// that their messages pair.
func cyclic(b schedule.Buf, first, count, size int, f func(schedule.Span)) {
	if count == 0 {
		return
	}
	first %= size
	n := min(count, size-first)
	f(span(b, first, n))
	if n < count {
		f(span(b, 0, count-n))
	}
}
