package bootstrap

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// Publish puts addresses at which newcomers can ask to join the job into the store that cfg names, under
// gccl/RUN/join. It returns the secret to expect of them: cfg's, or, where only this user can read the
// store, one made up for them. withdraw takes the notice down, unless another process has put up its own.
func Publish(ctx context.Context, cfg Config, addrs []string) (secret string, withdraw func(), err error) {
	b, err := joinBoard(ctx, cfg)
	if err != nil {
		return "", nil, fmt.Errorf("bootstrap: %w", err)
	}
	n := notice{addrs: addrs}
	if secret = cfg.Secret; secret == "" && b.private() {
		n.secret = rand.Text()
		secret = n.secret
	}
	if err := b.put(ctx, n.String()); err != nil {
		b.up = false
		b.close(ctx)
		return "", nil, fmt.Errorf("bootstrap: %w", err)
	}
	return secret, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		mine, err := b.store.Get(ctx, b.key)
		b.up = err == nil && bytes.Equal(mine, []byte(n.String()))
		b.close(ctx)
	}, nil
}

// Find waits for what Publish put up and returns it.
func Find(ctx context.Context, cfg Config) (addrs []string, secret string, err error) {
	b, err := joinBoard(ctx, cfg)
	if err != nil {
		return nil, "", fmt.Errorf("bootstrap: %w", err)
	}
	defer b.close(ctx)
	text, err := b.get(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("bootstrap: %w: nobody takes newcomers in: %w", ErrTimeout, err)
	}
	n, err := parseNotice(text)
	if err != nil {
		return nil, "", fmt.Errorf("bootstrap: %w", err)
	}
	if secret = cfg.Secret; secret == "" {
		secret = n.secret
	}
	return n.addrs, secret, nil
}

func joinBoard(ctx context.Context, cfg Config) (*storeBoard, error) {
	if cfg.Store == nil && cfg.Rendezvous == "" {
		return nil, fmt.Errorf("%w: newcomers and the job find each other by a store: set GCCL_RENDEZVOUS", ErrConfig)
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	b, err := openBoard(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	s := b.(*storeBoard) // there is a store
	run := wire.DigestRun(cfg.RunID)
	s.key = fmt.Sprintf("gccl/%x/join", run[:])
	return s, nil
}
