package npy

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gccl/gccl/tensor"
	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

// file writes a file by the specification, apart from Header.
func file(major byte, dict string, data ...byte) []byte {
	b := []byte{0x93, 'N', 'U', 'M', 'P', 'Y', major, 0}
	dict += "\n"
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(dict)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(dict)))
	}
	return append(append(b, dict...), data...)
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name  string
		file  []byte
		dt    tensor.DType
		shape []int
		data  []byte
	}{
		{"float32", file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }   ", 0, 0, 128, 63, 0, 0, 0, 192), tensor.Float32, []int{2, 1}, []byte{0, 0, 128, 63, 0, 0, 0, 192}},
		{"version 2", file(2, "{'descr': '<i2', 'fortran_order': False, 'shape': (1,), }", 1, 2), tensor.Int16, []int{1}, []byte{1, 2}},
		{"version 3", file(3, "{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", 1, 2), tensor.Float16, []int{1}, []byte{1, 2}},
		{"number", file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 7), tensor.Uint8, []int{}, []byte{7}},
		{"empty", file(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 0), }"), tensor.Float64, []int{3, 0}, []byte{}},
		{"another order and style", file(1, `{"shape":(1,1),"fortran_order":False,"descr":"<u8"}`, 1, 2, 3, 4, 5, 6, 7, 8), tensor.Uint64, []int{1, 1}, []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		{"Python 2", file(1, "{'descr': '<i1', 'fortran_order': False, 'shape': (2L,), }", 1, 2), tensor.Int8, []int{2}, []byte{1, 2}},
	} {
		a, err := Decode(c.file)
		require.NoError(t, err, c.name)
		require.Equal(t, c.dt, a.Data.DType(), c.name)
		require.Equal(t, c.shape, a.Shape, c.name)
		require.Equal(t, c.data, a.Data.Bytes(), c.name)
	}
}

func TestRefuse(t *testing.T) {
	const good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
	with := func(old, new string) []byte {
		return file(1, strings.Replace(good, old, new, 1), make([]byte, 8)...)
	}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "not a .npy file"},
		{[]byte("\x93NUMPY\x01\x00"), "truncated"},
		{file(1, good, make([]byte, 7)...), "truncated: 7 bytes of data, float32[2] has 8"},
		{file(1, good)[:40], "truncated: header"},
		{file(1, good, make([]byte, 9)...), "1 bytes after the end"},
		{file(4, good, make([]byte, 8)...), "version 4.0"},
		{[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), "header of 4294967295 bytes"},
		{with("<f4", ">f4"), "big-endian"},
		{with("'<f4'", "'|O'"), "Python objects"},
		{with("'<f4'", "'|b1'"), "boolean"},
		{with("'<f4'", "'<c8'"), "complex"},
		{with("'<f4'", "'<f3'"), "unknown"},
		{with("'<f4'", "''"), "unknown"},
		{with("'<f4'", "[('a', '<f4')]"), "structure"},
		{with("False", "True"), "Fortran order"},
		{with("False", "None"), "True or False"},
		{with("(2,)", "(2)"), "no tuple"},
		{with("(2,)", "(2 2)"), "want a comma"},
		{with("(2,)", "(-2,)"), "want a length"},
		{with("(2,)", "(99999999999999999999,)"), "want a length"},
		{with("(2,)", "(4611686018427387904, 4611686018427387904)"), "address space"},
		{with("(2,)", "("+strings.Repeat("1,", 65)+")"), "more than 64 dimensions"},
		{with("(2,), }", "(2,), 'extra': 1}"), `unknown key "extra"`},
		{with("'descr': '<f4', ", ""), "descr is missing"},
		{with("'descr': '<f4'", "'descr': '<f4', 'descr': '<f4'"), "twice"},
		{with("}", "} x"), "after the dictionary"},
		{with("{", "["), `want '{'`},
		{with("'shape'", "shape"), "want a string"},
	} {
		_, err := Decode(c.file)
		require.ErrorContains(t, err, c.want, "%q", c.file)
	}
}

func TestHeader(t *testing.T) {
	for _, c := range []struct {
		dt    tensor.DType
		shape []int
		want  string
	}{
		{tensor.Float32, []int{3, 4}, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"},
		{tensor.Int8, []int{3}, "{'descr': '|i1', 'fortran_order': False, 'shape': (3,), }"},
		{tensor.Float64, nil, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"},
	} {
		h, err := Header(c.dt, c.shape)
		require.NoError(t, err)
		require.Zero(t, len(h)%64)
		require.Empty(t, cmp.Diff(c.want, strings.TrimRight(string(h[10:]), " \n")))
		require.EqualValues(t, len(h)-10, binary.LittleEndian.Uint16(h[8:]))
		require.EqualValues(t, '\n', h[len(h)-1])
	}
	_, err := Header(tensor.BFloat16, []int{1})
	require.ErrorContains(t, err, "no bfloat16")
	_, err = Header(tensor.Int8, make([]int, 65))
	require.ErrorContains(t, err, "dimensions")
}

// FuzzDecode: no panic, and what is accepted reads the same when it is written again.
func FuzzDecode(f *testing.F) {
	f.Add(file(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", make([]byte, 8)...))
	f.Add(file(3, "{'descr': '|u1', 'fortran_order': False, 'shape': (), }", 1))
	f.Add(file(2, "{'shape':(0,1L),'descr':\"<u8\",'fortran_order':False}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := Decode(b)
		if err != nil {
			return
		}
		h, err := Header(a.Data.DType(), a.Shape)
		require.NoError(t, err)
		again, err := Decode(append(h, a.Data.Bytes()...))
		require.NoError(t, err)
		require.Equal(t, a.Shape, again.Shape)
		require.Equal(t, a.Data.DType(), again.Data.DType())
		require.Equal(t, a.Data.Bytes(), again.Data.Bytes())
	})
}
