package verbs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only a sysfs that is there and shows no device says that there is none.
func TestKernelHasDevices(t *testing.T) {
	classes := filepath.Join(t.TempDir(), "class")
	require.True(t, hasDevices(classes), "no sysfs to be seen")
	require.NoError(t, os.Mkdir(classes, 0o700))
	require.False(t, hasDevices(classes))
	verbs := filepath.Join(classes, "infiniband_verbs")
	require.NoError(t, os.Mkdir(verbs, 0o700))
	require.False(t, hasDevices(classes))
	require.NoError(t, os.Mkdir(filepath.Join(verbs, "uverbs0"), 0o700))
	require.True(t, hasDevices(classes))
}
