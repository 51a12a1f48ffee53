package tensor

import "fmt"

// Tensor is a view of a caller's memory as a run of elements of one type. It is a small value:
// copying it copies no element, and it keeps the memory reachable. The zero value is no tensor
// (DType Invalid, length 0). Making, slicing and comparing tensors in host memory allocates nothing.
type Tensor struct { // of four words, which the compiler keeps in registers
	first *byte         // of n bytes of host memory
	n     int           // bytes, wherever they are
	dev   *deviceMemory // of device memory (see OnDevice); first is nil then
	dt    DType
}

// Of is the view of s. The tensor shares s's memory.
func Of[T Element](s []T) Tensor {
	return inHost(TypeOf[T](), bytesOf(s))
}

// FromBytes is the view of b as elements of type dt in the machine's byte order. The length must
// be a multiple of the element's size. b may have any alignment.
func FromBytes(dt DType, b []byte) (Tensor, error) {
	if !dt.Valid() {
		return Tensor{}, fmt.Errorf("tensor: %v is no element type", dt)
	}
	if len(b)%dt.Size() != 0 {
		return Tensor{}, fmt.Errorf("tensor: %d bytes are no whole number of %v elements", len(b), dt)
	}
	return inHost(dt, b), nil
}

// DType is the type of the elements.
func (t Tensor) DType() DType { return t.dt }

// Len is the number of elements.
func (t Tensor) Len() int {
	if t.dt == Invalid {
		return 0
	}
	return t.Size() / t.dt.Size()
}

// Bytes is the memory of the elements, shared; nil if that is on a device.
func (t Tensor) Bytes() []byte { return span(t.first, t.n, t.dev == nil) }

// Slice is the view of the elements [lo, hi). It panics unless 0 <= lo <= hi <= Len, as a slice
// expression does.
func (t Tensor) Slice(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.Len() {
		panic(fmt.Sprintf("tensor: slice [%d:%d] of %d elements", lo, hi, t.Len()))
	}
	size := t.dt.Size()
	if t.dev != nil {
		return Tensor{dev: t.dev.from(lo * size), n: (hi - lo) * size, dt: t.dt}
	}
	return inHost(t.dt, t.Bytes()[lo*size:hi*size:hi*size])
}

// String describes the view, not the elements: "float32[1024]", "float32[1024] on cuda:0".
func (t Tensor) String() string {
	if t.dev != nil {
		return fmt.Sprintf("%v[%d] on %v", t.dt, t.Len(), t.dev.device)
	}
	return fmt.Sprintf("%v[%d]", t.dt, t.Len())
}

// Overlap says how the memory of two tensors meets.
type Overlap uint8

// The overlaps.
const (
	Disjoint Overlap = iota // no byte in common; an empty tensor is disjoint from everything
	Same                    // the same bytes
	Partial                 // some bytes in common
)

// String is the name of the overlap.
func (o Overlap) String() string {
	switch o {
	case Disjoint:
		return "disjoint"
	case Same:
		return "same"
	}
	return "partial"
}

// Compare says how the memory of a and b meets, whatever their element types. Addresses of the host and of
// all devices are of one space (CUDA's unified addressing).
func Compare(a, b Tensor) Overlap {
	pa, pb := a.Addr(), b.Addr()
	na, nb := uint64(a.Size()), uint64(b.Size())
	switch {
	case na == 0 || nb == 0:
		return Disjoint
	case pa == pb && na == nb:
		return Same
	case pa-pb < nb || pb-pa < na: // modular: at most one difference is not huge
		return Partial
	}
	return Disjoint
}
