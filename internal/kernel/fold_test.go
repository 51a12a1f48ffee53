package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

var allTypes = []Type{Float16, BFloat16, Float32, Float64, Int8, Int16, Int32, Int64,
	Uint8, Uint16, Uint32, Uint64, Float8E4M3, Float8E5M2}

var opNames = []string{"none", "sum", "prod", "min", "max", "bitand", "bitor", "bitxor",
	"logicaland", "logicalor", "logicalxor"}

// eachPair runs a subtest for every type and operation that exists for it.
func eachPair(t *testing.T, f func(t *testing.T, dt Type, op Op, rng *rand.Rand)) {
	for _, dt := range allTypes {
		for op := Sum; op <= LogicalXor; op++ {
			if Has(dt, op) {
				t.Run(typeName(dt)+"/"+opNames[op], func(t *testing.T) {
					f(t, dt, op, rand.New(rand.NewPCG(uint64(dt), uint64(op))))
				})
			}
		}
	}
}

// specials are codes of a float type where rules change: zeros, denormals, one, the largest value,
// infinity, quiet and signalling NaN with payloads.
func specials(dt Type) []uint64 {
	if !dt.Float() {
		all := uint64(1)<<(8*dt.Size()-1)<<1 - 1
		return []uint64{0, 1, 2, all, all >> 1, all>>1 + 1}
	}
	f := dumbFormats[dt]
	one := uint64(1<<(f.exp-1)-1) << f.man
	list := []uint64{0, 1, 2, 1<<f.man - 1, 1 << f.man, one, one + 1, f.topExp() - 1, f.topExp(),
		f.topExp() | 1, f.quiet(f.topExp()), f.quiet(f.topExp()) | 1, f.topExp() | (1<<f.man - 1)}
	for _, c := range list {
		list = append(list, c|1<<(f.bits-1))
	}
	return list
}

// fill writes random elements: a third any bits, a third special, a third close in size.
func fill(rng *rand.Rand, dt Type, b []byte) {
	special := specials(dt)
	for i := range len(b) / dt.Size() {
		c := rng.Uint64()
		switch rng.IntN(3) {
		case 0:
			c = special[rng.IntN(len(special))]
		case 1:
			if dt.Float() {
				f := dumbFormats[dt]
				one := uint64(1<<(f.exp-1)-1) << f.man
				c = one + c%(3<<f.man) - 1<<f.man | c>>63<<(f.bits-1)
			}
		}
		putCode(dt, b, i, c)
	}
}

// buffer is room for n elements at a random offset from alignment, within guard bytes.
func buffer(rng *rand.Rand, dt Type, n int) []byte {
	off := rng.IntN(64)
	b := make([]byte, off+n*dt.Size()+64)
	return b[off : off+n*dt.Size()]
}

func TestFoldAgainstDumb(t *testing.T) {
	eachPair(t, func(t *testing.T, dt Type, op Op, rng *rand.Rand) {
		for range 30 {
			n := rng.IntN(200)
			srcs := make([][]byte, 1+rng.IntN(6))
			for i := range srcs {
				srcs[i] = buffer(rng, dt, n)
				fill(rng, dt, srcs[i])
			}
			want := make([]byte, n*dt.Size())
			codes := make([]uint64, len(srcs))
			for i := range n {
				for j, s := range srcs {
					codes[j] = getCode(dt, s, i)
				}
				putCode(dt, want, i, dumbFold(dt, op, codes))
			}
			dsts := make([][]byte, 1+rng.IntN(3))
			for i := range dsts {
				dsts[i] = buffer(rng, dt, n)
			}
			if rng.IntN(2) == 0 { // in place, on any of the sources
				dsts[0] = srcs[rng.IntN(len(srcs))]
			}
			Fold(dt, op, dsts, srcs, false)
			for i, d := range dsts {
				requireSame(t, dt, want, d, "destination %d of %d, %d sources", i, len(dsts), len(srcs))
			}
		}
	})
}

// TestFoldEveryPairOf8Bits is exhaustive over both operands of the one-byte types.
func TestFoldEveryPairOf8Bits(t *testing.T) {
	var a, b [1 << 16]byte
	for i := range a {
		a[i], b[i] = byte(i), byte(i>>8)
	}
	eachPair(t, func(t *testing.T, dt Type, op Op, rng *rand.Rand) {
		if dt.Size() != 1 {
			return
		}
		got := make([]byte, len(a))
		Fold(dt, op, [][]byte{got}, [][]byte{a[:], b[:]}, false)
		for i := range got {
			want := dumbFold(dt, op, []uint64{uint64(a[i]), uint64(b[i])})
			if uint64(got[i]) != want {
				require.Failf(t, "wrong", "%#x and %#x give %#x, want %#x", a[i], b[i], got[i], want)
			}
		}
	})
}

// TestFoldStaysInside checks that nothing beside the destinations changes, at every small length
// and offset.
func TestFoldStaysInside(t *testing.T) {
	eachPair(t, func(t *testing.T, dt Type, op Op, rng *rand.Rand) {
		size := dt.Size()
		for n := range 70 {
			off := rng.IntN(64)
			d := bytes.Repeat([]byte{0xA5}, off+n*size+64)
			a, b := make([]byte, n*size), make([]byte, n*size)
			fill(rng, dt, a)
			fill(rng, dt, b)
			Fold(dt, op, [][]byte{d[off : off+n*size]}, [][]byte{a, b}, false)
			for i, x := range d {
				if (i < off || i >= off+n*size) && x != 0xA5 {
					require.Failf(t, "wrote outside", "byte %d of [%d,%d)", i, off, off+n*size)
				}
			}
		}
	})
}

func TestFoldOfNothing(t *testing.T) {
	src := []byte{1, 2, 3, 4}
	Fold(Float32, Sum, nil, [][]byte{src, src}, false)
	Fold(Float32, Sum, [][]byte{nil}, [][]byte{nil, nil}, false)
	require.Equal(t, []byte{1, 2, 3, 4}, src)
}

func requireSame(t *testing.T, dt Type, want, got []byte, format string, args ...any) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	for i := range len(want) / dt.Size() {
		require.Equal(t, fmt.Sprintf("%#x", getCode(dt, want, i)), fmt.Sprintf("%#x", getCode(dt, got, i)),
			"element %d, %s", i, fmt.Sprintf(format, args...))
	}
}
