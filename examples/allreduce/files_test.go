package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// format is an element type as the specifications of the file formats and of the types have it,
// apart from package tensor.
type format struct {
	safe, npy string // names; no npy: NumPy has none
	size      int
	signed    bool // integers
	// Floats: width of the mantissa and bias of the exponent; 0: integer.
	mantissa, bias int
	e4m3           bool // the highest exponent is ordinary, and only all ones are NaN
	// limit bounds the magnitudes in the test so that every sum of three is exact.
	limit int
}

var formats = []format{
	{"F8_E4M3", "", 1, true, 3, 7, true, 5},
	{"F8_E5M2", "", 1, true, 2, 15, false, 2},
	{"F16", "<f2", 2, true, 10, 15, false, 600},
	{"BF16", "", 2, true, 7, 127, false, 80},
	{"F32", "<f4", 4, true, 23, 127, false, 5_000_000},
	{"F64", "<f8", 8, true, 52, 1023, false, 1 << 30},
	{"I8", "|i1", 1, true, 0, 0, false, 127},
	{"I16", "<i2", 2, true, 0, 0, false, 1<<15 - 1},
	{"I32", "<i4", 4, true, 0, 0, false, 1<<31 - 1},
	{"I64", "<i8", 8, true, 0, 0, false, 1<<63 - 1},
	{"U8", "|u1", 1, false, 0, 0, false, 255},
	{"U16", "<u2", 2, false, 0, 0, false, 1<<16 - 1},
	{"U32", "<u4", 4, false, 0, 0, false, 1<<32 - 1},
	{"U64", "<u8", 8, false, 0, 0, false, 1<<63 - 1},
}

// value is the number with the given bits.
func (f format) value(bits uint64) float64 {
	switch f.size {
	case 8:
		return math.Float64frombits(bits)
	case 4:
		return float64(math.Float32frombits(uint32(bits)))
	}
	exponents := 8*f.size - 1 - f.mantissa
	m := bits & (1<<f.mantissa - 1)
	e := int(bits>>f.mantissa) & (1<<exponents - 1)
	v := math.Ldexp(1+float64(m)/float64(uint64(1)<<f.mantissa), e-f.bias)
	switch top := e == 1<<exponents-1; {
	case e == 0:
		v = math.Ldexp(float64(m), 1-f.bias-f.mantissa)
	case top && f.e4m3 && m == 1<<f.mantissa-1, top && !f.e4m3 && m != 0:
		v = math.NaN()
	case top && !f.e4m3:
		v = math.Inf(1)
	}
	if bits>>(8*f.size-1) != 0 {
		v = -v
	}
	return v
}

// nearest is the bits of the value nearest to x, for narrow types by trying all.
func (f format) nearest(x float64) uint64 {
	switch f.size {
	case 8:
		return math.Float64bits(x)
	case 4:
		return uint64(math.Float32bits(float32(x)))
	}
	best, gap := uint64(0), math.Inf(1)
	for b := range uint64(1) << (8 * f.size) {
		if math.Signbit(f.value(b)) == math.Signbit(x) && math.Abs(f.value(b)-x) < gap {
			best, gap = b, math.Abs(f.value(b)-x)
		}
	}
	return best
}

// wrap is an integer in the type's range.
func (f format) wrap(bits uint64) int64 {
	shift := 64 - 8*f.size
	if f.signed {
		return int64(bits<<shift) >> shift
	}
	return int64(bits << shift >> shift) // of U64, the same bits
}

const ranks, length = 3, 40

// data is random numbers for three ranks, by their bits, and the bits of their average by
// docs/numerics.md: floats whose sum is exact, divided and rounded once; integers that wrap, divided
// and cut.
func (f format) data(rng *rand.Rand) (in [ranks][]uint64, avg []uint64) {
	for range length {
		exact, wrapped := 0.0, uint64(0)
		for r := range in {
			n := int64(rng.Uint64N(uint64(f.limit) + 1))
			if f.signed && rng.IntN(2) == 0 {
				n = -n
			}
			if f.mantissa > 0 {
				in[r] = append(in[r], f.nearest(float64(n)))
			} else {
				in[r] = append(in[r], uint64(n))
			}
			exact += float64(n)
			wrapped += uint64(n)
		}
		switch {
		case f.mantissa > 0:
			avg = append(avg, f.nearest(exact/ranks))
		case f.signed:
			avg = append(avg, uint64(f.wrap(wrapped)/ranks))
		default:
			avg = append(avg, uint64(f.wrap(wrapped))/ranks)
		}
	}
	return in, avg
}

func (f format) bytes(all []uint64) []byte {
	var b []byte
	for _, v := range all {
		b = append(b, binary.LittleEndian.AppendUint64(nil, v)[:f.size]...)
	}
	return b
}

// safeFile is a safetensors file of one tensor a type, each [4,10], written from the specification.
func safeFile(fs []format, data [][]byte) []byte {
	var header []string
	var body []byte
	for i, f := range fs {
		header = append(header, fmt.Sprintf(`"layer.%s": {"dtype": "%s", "shape": [4, 10], "data_offsets": [%d, %d]}`, f.safe, f.safe, len(body), len(body)+len(data[i])))
		body = append(body, data[i]...)
	}
	text := "{" + strings.Join(header, ", ") + "}"
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), body...)
}

// npyFile is a .npy file of shape (4, 10), in a version of the format.
func npyFile(f format, version byte, data []byte) []byte {
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (4, 10), }", f.npy)
	b := []byte{0x93, 'N', 'U', 'M', 'P', 'Y', version, 0}
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)+1))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dict)+1))
	}
	return append(append(b, dict+"\n"...), data...)
}

func put(t *testing.T, dir, name string, b []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
}

func TestAverageSafetensors(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string][]byte{}
	var in [ranks][][]byte
	for _, f := range formats {
		data, avg := f.data(rng)
		for r := range in {
			in[r] = append(in[r], f.bytes(data[r]))
		}
		want["layer."+f.safe] = f.bytes(avg)
	}
	for r := range in {
		fs, data := append([]format{}, formats...), in[r]
		if r == 1 { // the order in the file is its own affair
			for i, j := 0, len(fs)-1; i < j; i, j = i+1, j-1 {
				fs[i], fs[j], data[i], data[j] = fs[j], fs[i], data[j], data[i]
			}
		}
		put(t, dir, fmt.Sprintf("grad-%02d.safetensors", r), safeFile(fs, data))
	}
	for _, provider := range []string{"auto", "loopback"} {
		out := runProgram(t, dir, "-n", "3", "-in", "grad-%02d.safetensors", "-op", "avg", "-out", "avg.safetensors", "-provider", provider)
		require.Zero(t, out.code, out.stderr)
		require.Contains(t, out.stdout, "identical on all ranks")
		b, err := os.ReadFile(filepath.Join(dir, "avg.safetensors"))
		require.NoError(t, err)
		n := 8 + binary.LittleEndian.Uint64(b)
		var header map[string]struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		require.NoError(t, json.Unmarshal(b[8:n], &header))
		require.Len(t, header, len(want))
		for name, h := range header {
			require.Equal(t, name, "layer."+h.DType)
			require.Equal(t, []int{4, 10}, h.Shape)
			require.Equal(t, want[name], b[n:][h.Offsets[0]:h.Offsets[1]], "%s over %s", name, provider)
		}
		require.Len(t, names(t, dir), 4)
		require.NoError(t, os.Remove(filepath.Join(dir, "avg.safetensors")))
	}
}

func TestAverageNpy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, f := range formats {
		if f.npy == "" {
			continue
		}
		dir := t.TempDir()
		in, avg := f.data(rng)
		for r := range in {
			put(t, dir, fmt.Sprintf("%d.npy", r), npyFile(f, byte(r+1), f.bytes(in[r])))
		}
		put(t, dir, "avg.npy", []byte("what was there before"))
		out := runProgram(t, dir, "-n=3", "-in", "%d.npy", "-op", "avg", "-out", "avg.npy", "-provider", "loopback")
		require.Zero(t, out.code, out.stderr)
		b, err := os.ReadFile(filepath.Join(dir, "avg.npy"))
		require.NoError(t, err)
		require.Equal(t, "\x93NUMPY\x01\x00\x76\x00{'descr': '"+f.npy+"', 'fortran_order': False, 'shape': (4, 10), }", strings.TrimRight(string(b[:128]), " \n"))
		require.Equal(t, f.bytes(avg), b[128:], f.npy)
		require.Len(t, names(t, dir), 4)
	}
}

// Sums that round: the result is a left fold in float32 in some order of the ranks.
func TestSumRounds(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(5, 6))
	f := formats[4]
	var in [ranks][]uint64
	for r := range in {
		for range length {
			in[r] = append(in[r], uint64(math.Float32bits(float32(rng.NormFloat64()))))
		}
		put(t, dir, strconv.Itoa(r)+".npy", npyFile(f, 1, f.bytes(in[r])))
	}
	out := runProgram(t, dir, "-n", "3", "-in", "%d.npy", "-out", "sum.npy")
	require.Zero(t, out.code, out.stderr)
	b, err := os.ReadFile(filepath.Join(dir, "sum.npy"))
	require.NoError(t, err)
	for i := range length {
		x := func(r int) float32 { return math.Float32frombits(uint32(in[r][i])) }
		got := math.Float32frombits(binary.LittleEndian.Uint32(b[128+4*i:]))
		require.Contains(t, []float32{x(0) + x(1) + x(2), x(1) + x(2) + x(0), x(2) + x(0) + x(1)}, got, "element %d", i)
	}
}
