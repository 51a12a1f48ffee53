// Package npy reads and writes NumPy's .npy files, versions 1.0 to 3.0, as NEP 1 and the documentation
// of numpy.lib.format specify them, for the element types that gccl reduces: little-endian floats of 16,
// 32 and 64 bits and integers, in C order. Big-endian numbers, Fortran order, booleans, complex
// numbers, structures and Python objects are refused, each by name.
package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/gccl/gccl/tensor"
)

// Array is the contents of a file.
type Array struct {
	Shape []int // empty for a single number
	Data  tensor.Tensor
}

// ErrTruncated is part of the error for a file that ends early.
var ErrTruncated = errors.New("the file is truncated")

const (
	magic = "\x93NUMPY"
	// maxHeader bounds the header: three short entries, and a shape of at most maxDims lengths.
	maxHeader = 64 << 10
	maxDims   = 64 // NumPy's own limit
	align     = 64
)

// Decode reads a file's bytes. The array shares their memory. It allocates no more than the header
// is long.
func Decode(b []byte) (Array, error) {
	if len(b) < len(magic) || string(b[:len(magic)]) != magic {
		return Array{}, fmt.Errorf("not a .npy file: it does not begin with %q", magic)
	}
	if len(b) < 12 {
		return Array{}, fmt.Errorf("%w: %d bytes", ErrTruncated, len(b))
	}
	var start, n int
	switch major, minor := b[6], b[7]; {
	case minor != 0 || major < 1 || major > 3:
		return Array{}, fmt.Errorf("version %d.%d of the .npy format is unknown; 1.0, 2.0 and 3.0 are known", major, minor)
	case major == 1:
		start, n = 10, int(binary.LittleEndian.Uint16(b[8:]))
	default:
		v := binary.LittleEndian.Uint32(b[8:])
		if v > maxHeader {
			return Array{}, fmt.Errorf("header of %d bytes, at most %d are allowed", v, maxHeader)
		}
		start, n = 12, int(v)
	}
	if len(b)-start < n {
		return Array{}, fmt.Errorf("%w: header of %d bytes in a file of %d", ErrTruncated, n, len(b))
	}
	h, err := parseHeader(string(b[start : start+n]))
	if err != nil {
		return Array{}, err
	}
	dt, err := dtype(h.descr)
	if err != nil {
		return Array{}, err
	}
	if h.fortran {
		return Array{}, errors.New("Fortran order: write the array in C order (numpy.ascontiguousarray)")
	}
	size, err := bytesOf(dt, h.shape)
	if err != nil {
		return Array{}, err
	}
	data := b[start+n:]
	switch {
	case len(data) < size:
		return Array{}, fmt.Errorf("%w: %d bytes of data, %v%v has %d", ErrTruncated, len(data), dt, h.shape, size)
	case len(data) > size:
		return Array{}, fmt.Errorf("%d bytes after the end of the data", len(data)-size)
	}
	t, err := tensor.FromBytes(dt, data)
	return Array{h.shape, t}, err
}

// bytesOf is the length of an array's data.
func bytesOf(dt tensor.DType, shape []int) (int, error) {
	n := uint64(dt.Size())
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if n = lo; hi != 0 || int(lo) < 0 {
			return 0, fmt.Errorf("shape %v of %v exceeds the address space", shape, dt)
		}
	}
	return int(n), nil
}

// Header is what precedes the data in a version 1.0 file. The types that NumPy lacks (bfloat16, the
// 8-bit floats) are refused.
func Header(dt tensor.DType, shape []int) ([]byte, error) {
	code, ok := codes[dt]
	if !ok {
		return nil, fmt.Errorf("the .npy format has no %v", dt)
	}
	if len(shape) > maxDims {
		return nil, fmt.Errorf("%d dimensions, the .npy format has at most %d", len(shape), maxDims)
	}
	var s strings.Builder
	for _, d := range shape {
		s.WriteString(strconv.Itoa(d))
		s.WriteString(", ")
	}
	tuple := s.String()
	if len(shape) > 1 {
		tuple = strings.TrimSuffix(tuple, ", ")
	} else {
		tuple = strings.TrimSuffix(tuple, " ") // (3,)
	}
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", code, tuple)
	pad := (align - (10+len(dict)+1)%align) % align
	dict += strings.Repeat(" ", pad) + "\n"
	h := append([]byte(magic), 1, 0)
	h = binary.LittleEndian.AppendUint16(h, uint16(len(dict)))
	return append(h, dict...), nil
}

// codes are NumPy's names of the element types.
var codes = map[tensor.DType]string{
	tensor.Float16: "<f2", tensor.Float32: "<f4", tensor.Float64: "<f8",
	tensor.Int8: "|i1", tensor.Int16: "<i2", tensor.Int32: "<i4", tensor.Int64: "<i8",
	tensor.Uint8: "|u1", tensor.Uint16: "<u2", tensor.Uint32: "<u4", tensor.Uint64: "<u8",
}

// dtype reads NumPy's description of an element type: byte order, kind and size.
func dtype(descr string) (tensor.DType, error) {
	if len(descr) < 2 {
		return tensor.Invalid, fmt.Errorf("element type %q is unknown", descr)
	}
	order, kind := descr[0], descr[1:]
	for dt, code := range codes {
		if code[1:] != kind {
			continue
		}
		if order == '>' && dt.Size() > 1 {
			return tensor.Invalid, fmt.Errorf("element type %q is big-endian: write it little-endian", descr)
		}
		if order == '<' || order == '|' && dt.Size() == 1 || order == '>' {
			return dt, nil
		}
	}
	switch kind[0] {
	case 'O':
		return tensor.Invalid, fmt.Errorf("element type %q is Python objects, not numbers", descr)
	case 'b', 'c', 'S', 'U', 'V', 'M', 'm':
		return tensor.Invalid, fmt.Errorf("element type %q (%s) cannot be reduced", descr, map[byte]string{
			'b': "boolean", 'c': "complex", 'S': "bytes", 'U': "text", 'V': "raw", 'M': "date", 'm': "time difference"}[kind[0]])
	}
	return tensor.Invalid, fmt.Errorf("element type %q is unknown", descr)
}
