package collective

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/tensor"
)

// A call's description on the wire, in the two words of link.Call beside the fingerprint:
//
//	A: kind 8 bits | operation 8 | element type 8 | algorithm 8 | sequence number 32
//	B: root 15 bits | registered 1 | count 48
//
// docs/wire.md has the same table.
func describeCall(k Kind, op uint8, dt tensor.DType, algorithm uint8, root int, registered bool, count int) (a, b uint64) {
	a = uint64(k)<<56 | uint64(op)<<48 | uint64(dt)<<40 | uint64(algorithm)<<32
	b = uint64(root&0x7fff)<<49 | uint64(count)&(1<<48-1)
	if registered {
		b |= 1 << 48
	}
	return a, b
}

// explain is the description in words; name gives the algorithm's.
func explain(c link.Call, name func(uint8) string) string {
	k := Kind(c.A >> 56)
	count, root := c.B&(1<<48-1), c.B>>49
	s := fmt.Sprintf("%v #%d", k, uint32(c.A))
	switch {
	case k == Barrier:
		return s
	case k == Send || k == Recv:
		return fmt.Sprintf("%s of %d elements of %v", s, count, tensor.DType(c.A>>40))
	}
	s += fmt.Sprintf("(%v[%d]", tensor.DType(c.A>>40), count)
	if k.reduces() {
		s += ", " + tensor.NameOf(uint8(c.A>>48))
	}
	if k.rooted() {
		s += fmt.Sprintf(", root %d", root)
	}
	s += ") by " + name(uint8(c.A>>32))
	if c.B>>48&1 == 1 {
		s += " on registered buffers"
	}
	return s
}

// received is the description of a Recv, from the one of the Send that it expects.
func received(send string) string { return Recv.String() + strings.TrimPrefix(send, Send.String()) }

// mix is one round of a 64-bit mixing function (a multiply folded onto itself, as in wyhash).
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return hi ^ lo
}

// hashInts folds a list of counts into a hash.
func hashInts(h uint64, vs []int) uint64 {
	for _, v := range vs {
		h = mix(h, uint64(v))
	}
	return h
}
