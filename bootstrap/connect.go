package bootstrap

import (
	"context"
	"fmt"
)

// Connect forms the group that cfg describes and returns when all ranks are there. The context bounds
// Connect alone; the group lives until Close.
func Connect(ctx context.Context, cfg Config) (Group, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("bootstrap: %w: rank %d of %d", ErrConfig, cfg.Rank, cfg.Size)
	}
	if cfg.Size == 1 {
		return Local(1)[0], nil
	}
	return nil, fmt.Errorf("bootstrap: %w: no way to reach the other ranks", ErrConfig)
}
