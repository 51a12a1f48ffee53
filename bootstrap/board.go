package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/wire"
	"github.com/gccl/gccl/bootstrap/store"
)

// board is where rank 0 puts up its addresses, when nobody knew them beforehand.
type board interface {
	// put shows a notice to all ranks. Rank 0 calls it once.
	put(ctx context.Context, notice string) error

	// get waits for the notice. Other ranks call it, again if the notice leads nowhere and if the
	// board can change.
	get(ctx context.Context) (string, error)

	// private says that only the job's own processes can read the board.
	private() bool

	// close takes the notice down, if it has been put up here and can be, and frees resources.
	close(ctx context.Context)
}

// notice is what a board shows: a secret, if the board made one for the job, and rank 0's addresses.
type notice struct {
	secret string
	addrs  []string
}

const noticeTag = "gccl1"

// String writes n in characters that every board carries.
func (n notice) String() string {
	return noticeTag + "/" + hex.EncodeToString([]byte(n.secret)) + "/" + strings.Join(n.addrs, ",")
}

func parseNotice(text string) (notice, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 || parts[0] != noticeTag {
		return notice{}, fmt.Errorf("%w: rank 0's notice %.40q is of another format", ErrMismatch, text)
	}
	secret, err := hex.DecodeString(parts[1])
	if err != nil {
		return notice{}, fmt.Errorf("%w: rank 0's notice has a malformed secret", ErrMismatch)
	}
	n := notice{secret: string(secret)}
	for _, addr := range strings.Split(parts[2], ",") {
		if _, err := netip.ParseAddrPort(addr); err != nil {
			return notice{}, fmt.Errorf("%w: rank 0's notice has the address %.60q", ErrMismatch, addr)
		}
		n.addrs = append(n.addrs, addr)
	}
	return n, nil
}

// openBoard opens the board that the configuration names.
func openBoard(ctx context.Context, cfg *Config) (board, error) {
	if cfg.Store == nil && cfg.Rendezvous == "" {
		return openPMI(ctx, cfg)
	}
	if cfg.RunID == "" {
		return nil, fmt.Errorf("%w: a rendezvous store serves many jobs: name this one with GCCL_RUN_ID", ErrConfig)
	}
	b := &storeBoard{store: cfg.Store}
	run := wire.DigestRun(cfg.RunID)
	b.key = fmt.Sprintf("gccl/%x/%d/root", run[:], cfg.Epoch)
	if b.store == nil {
		s, err := store.Open(ctx, cfg.Rendezvous, cfg.Secret)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		b.store, b.owned = s, true
	}
	return b, nil
}

// storeBoard is a board in a key-value store. The key holds the run and the epoch, so that nothing old
// is taken for new; what a crashed run with the same name left leads nowhere and is replaced.
type storeBoard struct {
	store store.Store
	owned bool
	key   string
	up    bool
}

func (b *storeBoard) put(ctx context.Context, notice string) error {
	b.up = true
	return b.store.Set(ctx, b.key, []byte(notice))
}

func (b *storeBoard) get(ctx context.Context) (string, error) {
	value, err := b.store.Get(ctx, b.key)
	return string(value), err
}

func (b *storeBoard) private() bool {
	_, file := b.store.(*store.File)
	return file
}

func (b *storeBoard) close(ctx context.Context) {
	if b.up {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		b.store.Delete(ctx, b.key) // best effort: what stays leads nowhere
	}
	if b.owned {
		b.store.Close()
	}
}

// announce binds rank 0's socket, if that has not been done, and puts its addresses on the board.
func announce(ctx context.Context, b board, cfg *Config) ([]net.Listener, error) {
	listeners := []net.Listener{cfg.Listener}
	if cfg.Listener == nil {
		var err error
		if listeners, err = listenAny(ctx, cfg, false); err != nil {
			return nil, err
		}
	}
	var n notice
	var err error
	if n.addrs, err = published(cfg, listeners, netip.Addr{}, cfg.oneHost()); err == nil {
		if cfg.Secret == "" && b.private() {
			n.secret = rand.Text()
			cfg.Secret = n.secret
		}
		err = b.put(ctx, n.String())
	}
	if err != nil {
		closeAll(listeners)
		return nil, err
	}
	return listeners, nil
}

// How long a notice may lead nowhere before it is read again: at first, and at last.
const (
	firstPatience = time.Second
	lastPatience  = 16 * time.Second
)

// follow finds rank 0 by the board. It completes cfg with what the notice says.
func follow(ctx context.Context, b board, cfg *Config) (*wire.Conn, error) {
	configured := cfg.Secret
	for patience := firstPatience; ; patience = min(2*patience, lastPatience) {
		stop := meet.Remind(firstAlarm, func() {
			cfg.Alarm.Warn(fmt.Sprintf("rank 0 has not told its address yet to who has %s: are GCCL_RUN_ID and GCCL_EPOCH the same on all ranks?", cfg.job()))
		})
		text, err := b.get(ctx)
		stop()
		if err != nil {
			return nil, fmt.Errorf("%w: rank 0 has not told its address: %w", ErrTimeout, err)
		}
		n, err := parseNotice(text)
		if err != nil {
			return nil, err
		}
		cfg.Root = strings.Join(n.addrs, ",")
		if cfg.Secret = configured; cfg.Secret == "" {
			cfg.Secret = n.secret
		}
		targets, err := meet.ParseTargets(cfg.Root)
		if err != nil {
			return nil, err
		}
		once, cancel := context.WithTimeout(ctx, patience)
		conn, err := reach(once, cfg, targets)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrTimeout) && !errors.Is(err, meet.ErrOther) && configured != "" {
			return conn, err
		}
	}
}
