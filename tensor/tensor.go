package tensor

import "fmt"

// Device says where a tensor's memory is. Only Host exists; the type keeps the place for others.
type Device uint8

// Host is the memory of this process.
const Host Device = 0

// Tensor is a view of a caller's memory as a run of elements of one type. It is a small value:
// copying it copies no element, and it keeps the memory reachable. The zero value is no tensor
// (DType Invalid, length 0). Making, slicing and comparing tensors allocates nothing.
type Tensor struct {
	b  []byte
	dt DType
}

// Of is the view of s. The tensor shares s's memory.
func Of[T Element](s []T) Tensor {
	return Tensor{bytesOf(s), TypeOf[T]()}
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
	return Tensor{b[:len(b):len(b)], dt}, nil
}

// DType is the type of the elements.
func (t Tensor) DType() DType { return t.dt }

// Len is the number of elements.
func (t Tensor) Len() int {
	if t.dt == Invalid {
		return 0
	}
	return len(t.b) / t.dt.Size()
}

// Bytes is the memory of the elements, shared.
func (t Tensor) Bytes() []byte { return t.b }

// Slice is the view of the elements [lo, hi). It panics unless 0 <= lo <= hi <= Len, as a slice
// expression does.
func (t Tensor) Slice(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.Len() {
		panic(fmt.Sprintf("tensor: slice [%d:%d] of %d elements", lo, hi, t.Len()))
	}
	size := t.dt.Size()
	return Tensor{t.b[lo*size : hi*size : hi*size], t.dt}
}

// Device is where the memory is.
func (t Tensor) Device() Device { return Host }

// String describes the view, not the elements: "float32[1024]".
func (t Tensor) String() string { return fmt.Sprintf("%v[%d]", t.dt, t.Len()) }

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

// Compare says how the memory of a and b meets, whatever their element types.
func Compare(a, b Tensor) Overlap {
	pa, pb := addr(a.b), addr(b.b)
	na, nb := uintptr(len(a.b)), uintptr(len(b.b))
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
