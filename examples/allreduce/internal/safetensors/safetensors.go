// Package safetensors reads and writes files of the safetensors format, version 0.x, as its README
// specifies it (https://github.com/huggingface/safetensors): eight bytes with the length of a JSON
// header, little-endian, the header, and the tensors' data, which the header covers without holes or
// overlaps. All of that is checked. Element types that gccl does not reduce (BOOL, complex, below 8
// bits) are refused.
package safetensors

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/gccl/gccl/tensor"
)

// Tensor is a tensor of a file.
type Tensor struct {
	Name  string
	Shape []int // empty for a single number
	Data  tensor.Tensor
}

// ErrTruncated is part of the error for a file that ends early.
var ErrTruncated = errors.New("the file is truncated")

const (
	// maxHeader is the reference implementation's limit.
	maxHeader  = 100_000_000
	metadata   = "__metadata__"
	headerWord = 8
)

// Decode reads a file's bytes and returns its tensors by name. They share the bytes' memory. What it
// allocates is in proportion to the header, which is part of b.
func Decode(b []byte) ([]Tensor, error) {
	if len(b) < headerWord {
		return nil, fmt.Errorf("%w: %d bytes", ErrTruncated, len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, at most %d are allowed: probably not a safetensors file", n, maxHeader)
	}
	if uint64(len(b)-headerWord) < n {
		return nil, fmt.Errorf("%w: header of %d bytes in a file of %d", ErrTruncated, n, len(b))
	}
	infos, err := parseHeader(b[headerWord : headerWord+n])
	if err != nil {
		return nil, err
	}
	data := b[headerWord+n:]
	slices.SortFunc(infos, func(x, y info) int {
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end), cmp.Compare(x.name, y.name))
	})
	end := uint64(0)
	tensors := make([]Tensor, len(infos))
	for i, in := range infos {
		if in.begin != end || in.end < in.begin {
			return nil, fmt.Errorf("tensor %q: data at [%d, %d), but the tensor before ends at %d", in.name, in.begin, in.end, end)
		}
		if end = in.end; end > uint64(len(data)) {
			return nil, fmt.Errorf("tensor %q: %w: data at [%d, %d) of %d bytes", in.name, ErrTruncated, in.begin, in.end, len(data))
		}
		size, err := bytesOf(in.dtype, in.shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", in.name, err)
		}
		if size != end-in.begin {
			return nil, fmt.Errorf("tensor %q: %d bytes of data, %v%v has %d", in.name, end-in.begin, in.dtype, in.shape, size)
		}
		t, err := tensor.FromBytes(in.dtype, data[in.begin:end])
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", in.name, err)
		}
		tensors[i] = Tensor{in.name, in.shape, t}
	}
	if end != uint64(len(data)) {
		return nil, fmt.Errorf("%d bytes after the last tensor", uint64(len(data))-end)
	}
	slices.SortFunc(tensors, func(x, y Tensor) int { return cmp.Compare(x.Name, y.Name) })
	return tensors, nil
}

// bytesOf is the length of a tensor's data.
func bytesOf(dt tensor.DType, shape []int) (uint64, error) {
	n := uint64(dt.Size())
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if n = lo; hi != 0 || int(lo) < 0 {
			return 0, fmt.Errorf("shape %v of %v exceeds the address space", shape, dt)
		}
	}
	return n, nil
}

// dtypes are the format's names of the element types.
var dtypes = map[string]tensor.DType{
	"F16": tensor.Float16, "BF16": tensor.BFloat16, "F32": tensor.Float32, "F64": tensor.Float64,
	"F8_E4M3": tensor.Float8E4M3, "F8_E5M2": tensor.Float8E5M2,
	"I8": tensor.Int8, "I16": tensor.Int16, "I32": tensor.Int32, "I64": tensor.Int64,
	"U8": tensor.Uint8, "U16": tensor.Uint16, "U32": tensor.Uint32, "U64": tensor.Uint64,
}
