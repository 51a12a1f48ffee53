package bootstrap

import (
	"context"
	"fmt"
	"strings"

	"github.com/gccl/gccl/bootstrap/internal/pmi"
)

// pmiKey is the key of rank 0's notice in the job's own key-value space.
const pmiKey = "gccl-root"

// pmiBoard is a board in the process manager's key-value space. PMI-1 can be used by one client of a
// process at a time and is over with Finalize; each rank passes one barrier.
type pmiBoard struct {
	conn *pmi.Conn
	hang func() error // closes the descriptor
	text string
}

func openPMI(ctx context.Context, cfg *Config) (board, error) {
	file, err := openFD(cfg.PMIFD)
	if err != nil {
		return nil, fmt.Errorf("%w: PMI_FD=%d: %w", ErrConfig, cfg.PMIFD, err)
	}
	conn, err := pmi.Start(ctx, file)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%w (does the program use MPI too? then set GCCL_ROOT)", err)
	}
	if cfg.RunID == "" {
		cfg.RunID = "pmi/" + conn.Job()
	}
	return &pmiBoard{conn: conn, hang: file.Close}, nil
}

func (b *pmiBoard) put(ctx context.Context, text string) error {
	// The last addresses are the least likely to be needed.
	for len(text) > b.conn.MaxValue() {
		cut := strings.LastIndexByte(text, ',')
		if cut < 0 {
			break
		}
		text = text[:cut]
	}
	if err := b.conn.Put(ctx, pmiKey, text); err != nil {
		return err
	}
	return b.conn.Barrier(ctx)
}

func (b *pmiBoard) get(ctx context.Context) (string, error) {
	if b.text == "" {
		if err := b.conn.Barrier(ctx); err != nil {
			return "", err
		}
		text, err := b.conn.Get(ctx, pmiKey)
		if err != nil {
			return "", err
		}
		b.text = text
	}
	return b.text, nil
}

func (b *pmiBoard) private() bool { return true }

func (b *pmiBoard) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	b.conn.Finalize(ctx) // best effort: the process manager may be gone
	b.hang()
}
