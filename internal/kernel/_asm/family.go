package main

import . "github.com/mmcloughlin/avo/operand"

// family is the functions of one generated file: every operation in one layout.
type family struct {
	file   string
	name   string   // in function names
	types  []string // of package kernel that the functions serve
	isa    isa
	layout *layout
	ops    []operation
	big    int // units in the main loop
}

func families() []family {
	var list []family
	add := func(file, name string, types []string, f *layout, big int, ops []operation, isas ...isa) {
		for _, a := range isas {
			list = append(list, family{file, name, types, a, f, ops, big})
		}
	}
	// AVX-512 is used where it is faster on the second-level cache: by 15 to 40 % for Min, Max and
	// the product of 64-bit integers, by 50 to 170 % for the 16-bit floats. Sum and Prod of the wide
	// types wait for memory with either.
	add("float32", "Float32", []string{"Float32"}, plain(4), 8, single.operations(), avx2)
	add("float32", "Float32", []string{"Float32"}, plain(4), 8, single.operations()[2:], avx512)
	add("float64", "Float64", []string{"Float64"}, plain(8), 8, double.operations(), avx2)
	add("float64", "Float64", []string{"Float64"}, plain(8), 8, double.operations()[2:], avx512)
	add("float16", "Float16", []string{"Float16"}, float16(), 8, single.operations(), avx2, avx512)
	add("bfloat16", "BFloat16", []string{"BFloat16"}, bfloat16(), 4, single.operations(), avx2, avx512)
	add("float8", "Float8E4M3", []string{"Float8E4M3"}, float8e4m3(), 4, single.operations(), avx512)
	add("float8", "Float8E5M2", []string{"Float8E5M2"}, float8e5m2(), 4, single.operations(), avx512)

	s := []string{"Int8", "Uint8"}
	add("int8", "8", s, plain(1), 8, []operation{simple("Sum", (*context).VPADDB)}, avx2)
	add("int8", "Int8", s[:1], plain(1), 8, []operation{simple("Min", (*context).VPMINSB), simple("Max", (*context).VPMAXSB)}, avx2)
	add("int8", "Uint8", s[1:], plain(1), 8, []operation{simple("Min", (*context).VPMINUB), simple("Max", (*context).VPMAXUB)}, avx2)

	s = []string{"Int16", "Uint16"}
	add("int16", "16", s, plain(2), 8, []operation{simple("Sum", (*context).VPADDW), simple("Prod", (*context).VPMULLW)}, avx2)
	add("int16", "Int16", s[:1], plain(2), 8, []operation{simple("Min", (*context).VPMINSW), simple("Max", (*context).VPMAXSW)}, avx2)
	add("int16", "Uint16", s[1:], plain(2), 8, []operation{simple("Min", (*context).VPMINUW), simple("Max", (*context).VPMAXUW)}, avx2)

	s = []string{"Int32", "Uint32"}
	add("int32", "32", s, plain(4), 8, []operation{simple("Sum", (*context).VPADDD), simple("Prod", (*context).VPMULLD)}, avx2)
	add("int32", "Int32", s[:1], plain(4), 8, []operation{simple("Min", (*context).VPMINSD), simple("Max", (*context).VPMAXSD)}, avx2)
	add("int32", "Uint32", s[1:], plain(4), 8, []operation{simple("Min", (*context).VPMINUD), simple("Max", (*context).VPMAXUD)}, avx2)

	s = []string{"Int64", "Uint64"}
	add("int64", "64", s, plain(8), 8, []operation{simple("Sum", (*context).VPADDQ)}, avx2)
	add("int64", "64", s, plain(8), 8, []operation{multiply64()}, avx2, avx512)
	add("int64", "Int64", s[:1], plain(8), 8, []operation{compare64("Min", false), compare64("Max", false)}, avx2)
	add("int64", "Uint64", s[1:], plain(8), 8, []operation{compare64("Min", true), compare64("Max", true)}, avx2)
	fixed := func(do func(c *context, b, x, dst Op)) instruction {
		return func(c *context, ops ...Op) { do(c, ops[0], ops[1], ops[2]) }
	}
	s = []string{"Int8", "Int16", "Int32", "Int64", "Uint8", "Uint16", "Uint32", "Uint64"}
	add("bits", "", s, plain(1), 8, []operation{
		simple("BitAnd", fixed((*context).VPAND)),
		simple("BitOr", fixed((*context).VPOR)),
		simple("BitXor", fixed((*context).VPXOR)),
	}, avx2)

	// Avg and PreMulSum go over a buffer once more. The wide types wait for memory with AVX2.
	wide, narrow := []operation{doubleScale.scale(), doubleScale.divide()}, []operation{singleScale.scale(), singleScale.divide()}
	add("scale", "Float32", []string{"Float32"}, plain(4), 8, narrow, avx2)
	add("scale", "Float64", []string{"Float64"}, plain(8), 8, wide, avx2)
	add("scale", "Float16", []string{"Float16"}, float16(), 8, narrow, avx2, avx512)
	add("scale", "BFloat16", []string{"BFloat16"}, bfloat16(), 2, narrow, avx2, avx512)
	add("scale", "Float8E4M3", []string{"Float8E4M3"}, float8e4m3(), 4, narrow, avx512)
	add("scale", "Float8E5M2", []string{"Float8E5M2"}, float8e5m2(), 4, narrow, avx512)
	add("copy", "", nil, plain(1), 8, []operation{{op: "Copy"}}, avx2)
	return list
}
