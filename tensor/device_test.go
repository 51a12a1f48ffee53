package tensor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnDevice(t *testing.T) {
	d, err := OnDevice(Float32, CUDA(2), 0x7f00_0000_0010, 100)
	require.NoError(t, err)
	require.Equal(t, 100, d.Len())
	require.Equal(t, 400, d.Size())
	require.Equal(t, CUDA(2), d.Device())
	require.Equal(t, 2, d.Device().Ordinal())
	require.Equal(t, "float32[100] on cuda:2", d.String())
	require.Nil(t, d.Bytes())
	require.Zero(t, d.Stream())

	s := d.WithStream(9).Slice(10, 30)
	require.EqualValues(t, 0x7f00_0000_0010+40, s.Addr())
	require.Equal(t, 20, s.Len())
	require.EqualValues(t, 9, s.Stream())
	require.Zero(t, d.Stream(), "the view that it was made of is as it was")
	require.Panics(t, func() { d.Slice(0, 101) })

	require.Equal(t, Partial, Compare(d, s))
	require.Equal(t, Same, Compare(s, d.Slice(10, 30)))
	require.Equal(t, Disjoint, Compare(d.Slice(0, 10), s))
	require.Equal(t, Disjoint, Compare(d, Of(make([]float32, 100))))

	h := Of([]int8{1})
	require.Equal(t, Host, h.Device())
	require.Equal(t, -1, Host.Ordinal())
	require.Equal(t, "host", Host.String())
	require.Zero(t, h.WithStream(9).Stream())
}

func TestOnDeviceRefuses(t *testing.T) {
	for _, tt := range []struct {
		dt    DType
		dev   Device
		addr  uint64
		count int
		want  string
	}{
		{Invalid, CUDA(0), 64, 1, "no element type"},
		{Float32, Host, 64, 1, "the host is no device"},
		{Float32, CUDA(0), 64, -1, "-1 elements"},
		{Float32, CUDA(0), 64, 1 << 60, "elements on cuda:0"},
		{Float32, CUDA(0), 0, 1, "address 0"},
		{Float32, CUDA(0), 66, 1, "not aligned for float32"},
		{Float32, CUDA(0), 1<<64 - 8, 4, "wrap around"},
	} {
		_, err := OnDevice(tt.dt, tt.dev, tt.addr, tt.count)
		require.ErrorContains(t, err, tt.want)
	}
	empty, err := OnDevice(Float32, CUDA(0), 0, 0)
	require.NoError(t, err)
	require.Zero(t, empty.Len())
	require.Equal(t, CUDA(0), empty.Device())
	require.Panics(t, func() { CUDA(-1) })
}
