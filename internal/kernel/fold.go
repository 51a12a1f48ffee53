package kernel

// block is the number of elements that the plain Go folds work on at a time: enough to spread the
// cost of choosing a loop, small enough that the accumulators stay in the first-level cache and
// clearing them costs nothing on the smallest messages.
const block = 64

// Fold writes ((srcs[0] ⊕ srcs[1]) ⊕ srcs[2]) … to every destination, element by element and
// always in that order. One source is copied bit for bit. All buffers have the same length. The
// narrow float types accumulate in float32 over all sources and round once. Has(t, op) must hold
// for two sources or more.
//
// With nt, destinations are written past the cache where the processor and their alignment allow
// it. The result is the same.
func Fold(t Type, op Op, dsts, srcs [][]byte, nt bool) {
	switch {
	case len(dsts) == 0 || len(srcs[0]) == 0:
	case len(srcs) == 1 && len(dsts) == 1 && !nt:
		copy(dsts[0], srcs[0])
	case len(dsts) == 1 && len(srcs) == 2 && len(srcs[0]) <= tinyMost && tiny(t, op, dsts[0], srcs[0], srcs[1]):
	case foldVector(t, op, dsts, srcs, nt):
	case len(srcs) == 1:
		for _, d := range dsts {
			copy(d, srcs[0])
		}
	default:
		generic(t, op, dsts, srcs)
	}
}

// generic is Fold in plain Go for two sources or more. It defines the result.
func generic(t Type, op Op, dsts, srcs [][]byte) {
	switch t {
	case Float32:
		foldFloat[float32](op, dsts, srcs)
	case Float64:
		foldFloat[float64](op, dsts, srcs)
	case Int8:
		foldInt[int8](op, dsts, srcs)
	case Int16:
		foldInt[int16](op, dsts, srcs)
	case Int32:
		foldInt[int32](op, dsts, srcs)
	case Int64:
		foldInt[int64](op, dsts, srcs)
	case Uint8:
		foldInt[uint8](op, dsts, srcs)
	case Uint16:
		foldInt[uint16](op, dsts, srcs)
	case Uint32:
		foldInt[uint32](op, dsts, srcs)
	case Uint64:
		foldInt[uint64](op, dsts, srcs)
	default:
		foldNarrow(t, op, dsts, srcs)
	}
}

// foldFloat folds block after block: every source's block is read before any destination's is
// written, so that a destination may be any of the sources.
func foldFloat[T float32 | float64](op Op, dsts, srcs [][]byte) {
	var acc, tmp [block]T
	step := block * sizeOf[T]()
	for off := 0; off < len(srcs[0]); off += step {
		end := min(off+step, len(srcs[0]))
		a := load(acc[:], srcs[0][off:end])
		for _, s := range srcs[1:] {
			combineFloat(op, a, view(tmp[:], s[off:end]))
		}
		store(dsts, off, a)
	}
}

func foldInt[T integer](op Op, dsts, srcs [][]byte) {
	var acc, tmp [block]T
	step := block * sizeOf[T]()
	for off := 0; off < len(srcs[0]); off += step {
		end := min(off+step, len(srcs[0]))
		a := load(acc[:], srcs[0][off:end])
		for _, s := range srcs[1:] {
			combineInt(op, a, view(tmp[:], s[off:end]))
		}
		store(dsts, off, a)
	}
}

// foldNarrow folds the float types below 32 bits, whose accumulators are float32.
func foldNarrow(t Type, op Op, dsts, srcs [][]byte) {
	var acc, tmp [block]float32
	step := block * t.Size()
	for off := 0; off < len(srcs[0]); off += step {
		end := min(off+step, len(srcs[0]))
		n := (end - off) / t.Size()
		decode(t, acc[:n], srcs[0][off:end])
		for _, s := range srcs[1:] {
			decode(t, tmp[:n], s[off:end])
			combineFloat(op, acc[:n], tmp[:n])
		}
		encode(t, dsts[0][off:end], acc[:n])
		for _, d := range dsts[1:] {
			copy(d[off:end], dsts[0][off:end])
		}
	}
}
