package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// So many ranks that nothing of the host's share is left for a link get the shortest ring buffers.
func TestGeometryOfMany(t *testing.T) {
	one := hello{Providers: []string{"shm"}}
	g := geometry(&Config{Channels: hostBuffers + 1, Slots: 2}, []hello{one, one})
	require.Equal(t, max(ringLeast, 2*slotLeast), g.Slots*g.SlotBytes)
}
