package collective

import (
	"bytes"
	"sync"

	"github.com/gccl/gccl/tensor"
)

// What the dumb reference says repeats after so many elements, whatever the type and operation: the
// least common multiple of the periods in valueOf. So it is computed for so many, and repeated.
const period = 2 * 7 * 251

// pattern is a period of elements of a type, encoded.
type pattern struct {
	dt    tensor.DType
	bytes []byte
}

func newPattern(dt tensor.DType, f func(i int) float64) pattern {
	p := pattern{dt, make([]byte, 0, period*dt.Size())}
	for i := range period {
		p.bytes = append(p.bytes, encode(dt, f(i))...)
	}
	return p
}

// fill writes elements first, first+1, … to b.
func (p pattern) fill(b []byte, first int) {
	at := first % period * p.dt.Size()
	for len(b) > 0 {
		b = b[copy(b, p.bytes[at:]):]
		at = 0
	}
}

// differs returns the first element of b that is not the one of the pattern, counted from first, or −1.
func (p pattern) differs(b []byte, first int) int {
	at := first % period * p.dt.Size()
	for done := 0; done < len(b); at = 0 {
		n := min(len(b)-done, len(p.bytes)-at)
		if want := p.bytes[at : at+n]; !bytes.Equal(b[done:done+n], want) {
			i := 0
			for b[done+i] == want[i] {
				i++
			}
			return (done + i) / p.dt.Size()
		}
		done += n
	}
	return -1
}

// oracle is the dumb reference as patterns, of which it keeps a few thousand.
type oracle struct {
	mu    sync.Mutex
	known map[oracleKey]pattern
}

type oracleKey struct {
	dt        tensor.DType
	op        tensor.Op
	lo, hi, n int // hi == 0: what rank lo gives
}

func (o *oracle) get(key oracleKey, f func(i int) float64) pattern {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, ok := o.known[key]
	if !ok {
		if o.known == nil || len(o.known) >= 4096 {
			o.known = map[oracleKey]pattern{}
		}
		p = newPattern(key.dt, f)
		o.known[key] = p
	}
	return p
}

var reference oracle

// given is what rank r contributes, before it is scaled.
func (o *oracle) given(dt tensor.DType, op tensor.Op, r int) pattern {
	if op == premul {
		op = tensor.Sum
	}
	return o.get(oracleKey{dt: dt, op: op, lo: r}, func(i int) float64 { return float64(wrap(dt, valueOf(dt, op, r, i))) })
}

// reduced is the reduction of ranks lo to hi−1 out of n.
func (o *oracle) reduced(dt tensor.DType, op tensor.Op, lo, hi, n int) pattern {
	return o.get(oracleKey{dt, op, lo, hi, n}, func(i int) float64 { return dumb(dt, op, lo, hi, n, i) })
}
