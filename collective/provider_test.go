package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A ^ before each provider is told from a provider of that name.
func TestCaretBeforeEach(t *testing.T) {
	for _, setting := range []string{"^shm,^tcp", "shm,^tcp", "^^shm"} {
		_, err := wanted(setting)
		require.ErrorIs(t, err, ErrInvalid, setting)
		require.ErrorContains(t, err, "one ^, before the whole list", setting)
	}
	names, err := wanted("^shm,tcp")
	require.NoError(t, err)
	require.NotContains(t, names, "tcp")
}
