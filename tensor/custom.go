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
	scratch     sync.Pool // of *scratch
	// combine sets dst = a ∘ b for equally long blocks of at most scratchBytes. dst is aligned; s
	// lends room for operands that are not.
	combine func(s *scratch, dst, a, b []byte)
}

// scratch is room for three blocks, aligned for every element type: the accumulator, and a place
// for operands that are not aligned.
type scratch struct{ acc, left, right []byte }

// Custom makes an operation of the caller's function: fn sets dst[i] = a[i] ∘ b[i] for every i.
// The three slices have equal lengths; dst may be a. fn must be associative, must not keep the
// slices, and may be called by several goroutines at once. commutative allows algorithms that
// change the order of the operands. All ranks must use the same function under the same name. It may not use the
// communicator that calls it.
//
// The operation works on T alone. Each call of Custom makes a distinct operation for ==.
func Custom[T Element](name string, commutative bool, fn func(dst, a, b []T)) Op {
	c := &custom{name: name, hash: hashName(name), commutative: commutative, dt: TypeOf[T]()}
	c.scratch.New = func() any {
		return &scratch{alignedBytes(scratchBytes), alignedBytes(scratchBytes), alignedBytes(scratchBytes)}
	}
	c.combine = func(s *scratch, dst, a, b []byte) {
		fn(elements[T](dst), elements[T](align[T](s.left, a)), elements[T](align[T](s.right, b)))
	}
	return Op{code: codeCustom, custom: c}
}

// align is b where it is aligned for T, else a copy in buf.
func align[T Element](buf, b []byte) []byte {
	if aligned[T](b) {
		return b
	}
	return buf[:copy(buf, b)]
}

// fold folds two sources or more. It accumulates outside every destination, since a destination
// may be a later source.
func (c *custom) fold(dsts, srcs [][]byte) {
	s := c.scratch.Get().(*scratch)
	for off := 0; off < len(srcs[0]); off += scratchBytes {
		end := min(off+scratchBytes, len(srcs[0]))
		acc := s.acc[:end-off]
		c.combine(s, acc, srcs[0][off:end], srcs[1][off:end])
		for _, src := range srcs[2:] {
			c.combine(s, acc, acc, src[off:end])
		}
		for _, d := range dsts {
			copy(d[off:end], acc)
		}
	}
	c.scratch.Put(s)
}
