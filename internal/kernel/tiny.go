package kernel

import (
	"encoding/binary"
	"math"
)

// tinyMost is how many bytes a small message carries at most. Of so few the choice of a vector kernel costs
// more than the arithmetic (of 8 bytes, a tenth of a Reduce at its root).
const tinyMost = 32

// tiny is Fold of two short sources into one destination for the common sums, or reports false.
func tiny(t Type, op Op, dst, a, b []byte) bool {
	if op != Sum {
		return false
	}
	b, dst = b[:len(a)], dst[:len(a)]
	switch t {
	case Float32:
		for ; len(a) >= 4 && len(b) >= 4 && len(dst) >= 4; a, b, dst = a[4:], b[4:], dst[4:] {
			x, y := math.Float32frombits(binary.NativeEndian.Uint32(a)), math.Float32frombits(binary.NativeEndian.Uint32(b))
			r := x + y
			if r != r {
				r = nan(x, y)
			}
			binary.NativeEndian.PutUint32(dst, math.Float32bits(r))
		}
	case Float64:
		for ; len(a) >= 8 && len(b) >= 8 && len(dst) >= 8; a, b, dst = a[8:], b[8:], dst[8:] {
			x, y := math.Float64frombits(binary.NativeEndian.Uint64(a)), math.Float64frombits(binary.NativeEndian.Uint64(b))
			r := x + y
			if r != r {
				r = nan(x, y)
			}
			binary.NativeEndian.PutUint64(dst, math.Float64bits(r))
		}
	case Int32, Uint32:
		for ; len(a) >= 4 && len(b) >= 4 && len(dst) >= 4; a, b, dst = a[4:], b[4:], dst[4:] {
			binary.NativeEndian.PutUint32(dst, binary.NativeEndian.Uint32(a)+binary.NativeEndian.Uint32(b))
		}
	case Int64, Uint64:
		for ; len(a) >= 8 && len(b) >= 8 && len(dst) >= 8; a, b, dst = a[8:], b[8:], dst[8:] {
			binary.NativeEndian.PutUint64(dst, binary.NativeEndian.Uint64(a)+binary.NativeEndian.Uint64(b))
		}
	default:
		return false
	}
	return true
}
