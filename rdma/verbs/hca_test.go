package verbs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The syntax and the examples are those of NCCL_IB_HCA (NCCL user guide, environment variables).
func TestHCAFilter(t *testing.T) {
	for _, tt := range []struct {
		filter, device string
		port           int
		want           bool
	}{
		{"", "mlx5_0", 1, true},
		{"mlx5", "mlx5_3", 2, true},
		{"mlx5", "rxe0", 1, false},
		{"=mlx5_0:1,mlx5_1:1", "mlx5_0", 1, true},
		{"=mlx5_0:1,mlx5_1:1", "mlx5_0", 2, false},
		{"=mlx5_0:1,mlx5_1:1", "mlx5_1", 1, true},
		{"=mlx5_1", "mlx5_10", 1, false},
		{"mlx5_1", "mlx5_10", 1, true},
		{"^=mlx5_3,mlx5_4", "mlx5_3", 1, false},
		{"^=mlx5_3,mlx5_4", "mlx5_30", 1, true},
		{"^mlx5_3", "mlx5_30", 1, false},
		{"^mlx5_3:2", "mlx5_3", 1, true},
		{"^mlx5_3:2", "mlx5_3", 2, false},
		{" mlx5_0 , rxe ", "rxe1", 1, true},
	} {
		f, err := parseHCA(tt.filter)
		require.NoError(t, err, tt.filter)
		assert.Equal(t, tt.want, f.match(tt.device, tt.port), "%q, %s:%d", tt.filter, tt.device, tt.port)
	}
}

func TestHCAFilterErrors(t *testing.T) {
	for _, s := range []string{"^", "=", "^=", "mlx5_0:", "mlx5_0:x", "mlx5_0:0", "mlx5_0:256", ",", "a,,b", ":1"} {
		_, err := parseHCA(s)
		assert.Error(t, err, "%q", s)
	}
}
