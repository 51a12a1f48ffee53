package executor

import (
	"testing"

	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/tensor"
	"github.com/stretchr/testify/require"
)

// farMessage is a receiver whose next message lies in its sender's process.
type farMessage struct {
	link.Receiver
	n int
}

func (r farMessage) Peek(*link.Call) (*link.Message, error) {
	return &link.Message{Len: r.n, Lent: true, Far: true}, nil
}

// What is read in the peer's process to where it goes is read in few calls of the kernel, however short the plan's pieces are. What
// has to be combined with something else is read block by block.
func TestPiecesOfWhatIsReadInThePeersProcess(t *testing.T) {
	e := &Engine{msgs: make([]*link.Message, 1)}
	sum, err := tensor.NewReducer(tensor.Uint8, tensor.Sum, 2)
	require.NoError(t, err)
	for _, c := range []struct {
		operands, length, want int
	}{
		{1, 300_001, 300_001},
		{1, 3 << 20, PieceBytes},
		{2, 3 << 20, farBytes},
		{2, 9_000, 9_000},
	} {
		a := &action{operands: make([]source, c.operands), receives: []link.Receiver{farMessage{n: c.length}}}
		l := &lane{size: c.length, job: &Job{Plan: &Plan{piece: cutBytes}}}
		if c.operands == 2 {
			l.job.Plan.piece, l.job.Args.Reducer = PieceBytes, sum
		}
		n, lent, err := e.arrived(l, a, min(c.length, l.job.Plan.piece))
		require.NoError(t, err)
		require.Equal(t, []any{c.want, true}, []any{n, lent})
	}
}
