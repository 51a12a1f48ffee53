package safetensors

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// file writes a file by the specification, apart from Layout.
func file(header string, data ...byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}

const good = `{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[1,5]},"a":{"dtype":"F8_E4M3","shape":[],"data_offsets":[0,1]},"empty":{"dtype":"I64","shape":[3,0],"data_offsets":[5,5]}}  `

func TestDecode(t *testing.T) {
	ts, err := Decode(file(good, 1, 2, 3, 4, 5))
	require.NoError(t, err)
	require.Len(t, ts, 3)
	for i, want := range []struct {
		name  string
		dt    tensor.DType
		shape []int
		data  []byte
	}{
		{"a", tensor.Float8E4M3, []int{}, []byte{1}},
		{"b", tensor.BFloat16, []int{1, 2}, []byte{2, 3, 4, 5}},
		{"empty", tensor.Int64, []int{3, 0}, []byte{}},
	} {
		require.Equal(t, want.name, ts[i].Name)
		require.Equal(t, want.dt, ts[i].Data.DType())
		require.Equal(t, want.shape, ts[i].Shape)
		require.Equal(t, want.data, ts[i].Data.Bytes())
	}
	ts, err = Decode(file("{}"))
	require.NoError(t, err)
	require.Empty(t, ts)
}

func TestRefuse(t *testing.T) {
	with := func(old, new string) []byte {
		require.Contains(t, good, old)
		return file(strings.Replace(good, old, new, 1), 1, 2, 3, 4, 5)
	}
	for _, c := range []struct {
		file []byte
		want string
	}{
		{nil, "truncated"},
		{[]byte{1, 2, 3}, "truncated"},
		{[]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "header of 18446744073709551615 bytes"},
		{file(good)[:50], "truncated: header"},
		{file(good, 1, 2, 3, 4), `tensor "b": the file is truncated`},
		{file(good, 1, 2, 3, 4, 5, 6), "1 bytes after the last tensor"},
		{file(""), "does not begin"},
		{file(" {}"), "does not begin"},
		{file("{\"\xff\":1}"), "UTF-8"},
		{file(`{"a"`), "header"},
		{file(`{} x`), "after the object"},
		{file("{}\n"), "after the object"},
		{with("[0,1]", "[0,2]"), `tensor "a": 2 bytes of data, float8_e4m3[] has 1`},
		{with("[1,5]", "[0,4]"), `tensor "b": data at [0, 4), but the tensor before ends at 1`},
		{with("[1,5]", "[2,5]"), "the tensor before ends at 1"},
		{with("[1,5]", "[1,0]"), "the tensor before ends at"},
		{with("[1,5]", "[1]"), "data_offsets has 1 numbers"},
		{with("[1,5]", "[1,-5]"), "cannot unmarshal"},
		{with("[1,5]", "[1,18446744073709551616]"), "cannot unmarshal"},
		{with("[1,2]", "[1,3]"), "4 bytes of data, bfloat16[1 3] has 6"},
		{with("[1,2]", "[-1,-2]"), "shape [-1 -2]"},
		{with("[1,2]", "[4611686018427387904,4611686018427387904]"), "address space"},
		{with("BF16", "BOOL"), `element type "BOOL"`},
		{with(`"dtype":"BF16",`, ""), "is missing"},
		{with(`"a"`, `"b"`), "twice"},
		{with(`{"format":"pt"}`, `{"format":1}`), "__metadata__"},
	} {
		_, err := Decode(c.file)
		require.ErrorContains(t, err, c.want, "%q", c.file)
	}
}

func TestLayout(t *testing.T) {
	ts := []Tensor{
		{"x", []int{1}, tensor.Of([]int8{1})},
		{"z", nil, tensor.Of([]float64{1})},
		{"y", []int{2, 1}, tensor.Of([]float64{1, 2})},
	}
	h, order, err := Layout(ts)
	require.NoError(t, err)
	require.Zero(t, len(h)%8)
	require.EqualValues(t, len(h)-8, binary.LittleEndian.Uint64(h))
	require.Equal(t, `{"x":{"dtype":"I8","shape":[1],"data_offsets":[24,25]},"y":{"dtype":"F64","shape":[2,1],"data_offsets":[0,16]},"z":{"dtype":"F64","shape":[],"data_offsets":[16,24]}}`,
		strings.TrimRight(string(h[8:]), " "))
	require.Equal(t, []string{"y", "z", "x"}, []string{order[0].Name, order[1].Name, order[2].Name})
	_, _, err = Layout([]Tensor{ts[0], ts[0]})
	require.ErrorContains(t, err, "taken")
}

// FuzzDecode: no panic, and what is accepted reads the same when it is written again.
func FuzzDecode(f *testing.F) {
	f.Add(file(good, 1, 2, 3, 4, 5))
	f.Add(file("{}"))
	f.Add(file(`{"a":{"dtype":"F8_E5M2","shape":[0],"data_offsets":[0,0]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ts, err := Decode(b)
		if err != nil {
			return
		}
		h, order, err := Layout(ts)
		require.NoError(t, err)
		for _, o := range order {
			h = append(h, o.Data.Bytes()...)
		}
		again, err := Decode(h)
		require.NoError(t, err)
		require.Len(t, again, len(ts))
		for i := range ts {
			require.Equal(t, ts[i].Name, again[i].Name)
			require.Equal(t, ts[i].Shape, again[i].Shape)
			require.Equal(t, ts[i].Data.DType(), again[i].Data.DType())
			require.Equal(t, ts[i].Data.Bytes(), again[i].Data.Bytes())
		}
	})
}
