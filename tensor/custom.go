package tensor

import "sync"

// scratchBytes is the block that custom operations work on at a time.
const scratchBytes = 16 << 10

// custom is an operation that the caller wrote.
type custom struct {
	name        string
	hash        uint32
	commutative bool
	dt          DType
	fold        func(dsts, srcs [][]byte) // two sources or more
}

// Custom makes an operation of the caller's function: fn sets dst[i] = a[i] ∘ b[i] for every i.
// The three slices have equal lengths; dst may be a or b. fn must be associative, must not keep
// the slices, and may be called by several goroutines at once. commutative allows algorithms that
// change the order of the operands. All ranks must use the same function under the same name.
//
// The operation works on T alone. Each call of Custom makes a distinct operation for ==.
func Custom[T Element](name string, commutative bool, fn func(dst, a, b []T)) Op {
	pool := sync.Pool{New: func() any { return new(scratch[T]).init() }}
	fold := func(dsts, srcs [][]byte) {
		if len(dsts) == 0 || len(dsts[0]) == 0 {
			return
		}
		s := pool.Get().(*scratch[T])
		s.fold(fn, dsts, srcs)
		pool.Put(s)
	}
	return Op{code: codeCustom, custom: &custom{name, hashName(name), commutative, TypeOf[T](), fold}}
}

// scratch is aligned memory for one block: the accumulator, and a place for operands that are not
// aligned.
type scratch[T Element] struct{ acc, left, right []T }

func (s *scratch[T]) init() *scratch[T] {
	n := scratchBytes / TypeOf[T]().Size()
	s.acc, s.left, s.right = make([]T, n), make([]T, n), make([]T, n)
	return s
}

// fold accumulates outside every destination, since a destination may be a later source.
func (s *scratch[T]) fold(fn func(dst, a, b []T), dsts, srcs [][]byte) {
	for off := 0; off < len(srcs[0]); off += scratchBytes {
		end := min(off+scratchBytes, len(srcs[0]))
		acc := s.acc[:(end-off)/TypeOf[T]().Size()]
		fn(acc, view(s.left, srcs[0][off:end]), view(s.right, srcs[1][off:end]))
		for _, src := range srcs[2:] {
			fn(acc, acc, view(s.right, src[off:end]))
		}
		for _, d := range dsts {
			copy(d[off:end], bytesOf(acc))
		}
	}
}

// view is the elements in b: b itself where it is aligned for T, else a copy in buf.
func view[T Element](buf []T, b []byte) []T {
	if aligned[T](b) {
		return elements[T](b)
	}
	buf = buf[:len(b)/TypeOf[T]().Size()]
	copy(bytesOf(buf), b)
	return buf
}
