package tensor

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"github.com/gccl/gccl/internal/kernel"
)

// Op is a reduction operation: ⊕ with, for some, a scaling of each rank's contribution before and
// a finishing of the result after. It is a value that can be compared with ==. The zero value is
// no operation.
type Op struct {
	code   uint8
	scale  uint64 // PreMulSum: the bits of the factor, so that == works for NaN too
	custom *custom
}

// Codes beyond package kernel's operations, which stand for themselves.
const (
	codeAvg       uint8 = 16
	codePreMulSum uint8 = 17
	codeCustom    uint8 = 32
)

// The operations. Sum, Prod, Min, Max and Avg exist for every element type, the bitwise and
// logical ones for integers. Logical operations take nonzero for true and give 0 or 1.
var (
	Sum        = Op{code: uint8(kernel.Sum)}
	Prod       = Op{code: uint8(kernel.Prod)}
	Min        = Op{code: uint8(kernel.Min)}
	Max        = Op{code: uint8(kernel.Max)}
	Avg        = Op{code: codeAvg}
	BitAnd     = Op{code: uint8(kernel.BitAnd)}
	BitOr      = Op{code: uint8(kernel.BitOr)}
	BitXor     = Op{code: uint8(kernel.BitXor)}
	LogicalAnd = Op{code: uint8(kernel.LogicalAnd)}
	LogicalOr  = Op{code: uint8(kernel.LogicalOr)}
	LogicalXor = Op{code: uint8(kernel.LogicalXor)}
)

// PreMulSum multiplies this rank's contribution by scale and then sums. The scale is this rank's
// own business: ranks may use different ones, and it does not go on the wire. Integer types need
// an integral scale that fits in them.
func PreMulSum(scale float64) Op {
	return Op{code: codePreMulSum, scale: math.Float64bits(scale)}
}

var opNames = map[uint8]string{
	Sum.code:        "sum",
	Prod.code:       "prod",
	Min.code:        "min",
	Max.code:        "max",
	Avg.code:        "avg",
	BitAnd.code:     "bitand",
	BitOr.code:      "bitor",
	BitXor.code:     "bitxor",
	LogicalAnd.code: "logicaland",
	LogicalOr.code:  "logicalor",
	LogicalXor.code: "logicalxor",
	codePreMulSum:   "premulsum",
}

// Ops lists the operations that need no argument, in the order of their codes.
func Ops() []Op {
	return []Op{Sum, Prod, Min, Max, BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor, Avg}
}

// ParseOp returns the operation with the given name, in any case: the [Op.Name] of one of the
// variables, or MPI's name (band, bor, bxor, land, lor, lxor).
func ParseOp(name string) (Op, error) {
	lower := strings.ToLower(name)
	switch lower {
	case "band":
		return BitAnd, nil
	case "bor":
		return BitOr, nil
	case "bxor":
		return BitXor, nil
	case "land":
		return LogicalAnd, nil
	case "lor":
		return LogicalOr, nil
	case "lxor":
		return LogicalXor, nil
	}
	for _, op := range Ops() {
		if op.Name() == lower {
			return op, nil
		}
	}
	return Op{}, fmt.Errorf("tensor: unknown operation %q", name)
}

// Valid reports whether op is an operation.
func (op Op) Valid() bool { return op.code != 0 }

// Name is the operation's name, such as "sum"; of a custom operation the name that it was given.
func (op Op) Name() string {
	if op.custom != nil {
		return op.custom.name
	}
	return NameOf(op.code)
}

// NameOf is the name of the operation with the given code, for what a peer sent: "custom" for
// every custom operation, "invalid" for no operation.
func NameOf(code uint8) string {
	if code == codeCustom {
		return "custom"
	}
	if name, ok := opNames[code]; ok {
		return name
	}
	return "invalid"
}

// String is the operation's name, with PreMulSum's factor.
func (op Op) String() string {
	if op.code == codePreMulSum {
		return fmt.Sprintf("premulsum(%v)", math.Float64frombits(op.scale))
	}
	return op.Name()
}

// Custom reports whether op is a program's own (the function [Custom]).
func (op Op) Custom() bool { return op.custom != nil }

// Commutative reports whether a ⊕ b = b ⊕ a, up to the bits of NaN. Every operation is taken to
// be associative.
func (op Op) Commutative() bool { return op.custom == nil || op.custom.commutative }

// Code stands for the operation on the wire. PreMulSum's factor is not part of it, and all custom
// operations have one code; see [Op.Hash].
func (op Op) Code() uint8 { return op.code }

// Hash is the 32-bit FNV-1a hash of a custom operation's name, so that ranks can tell that they
// mean the same one; 0 for the others.
func (op Op) Hash() uint32 {
	if op.custom == nil {
		return 0
	}
	return op.custom.hash
}

func hashName(name string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	return h.Sum32()
}
