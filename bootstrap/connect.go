package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/internal/meet"
	"github.com/gccl/gccl/bootstrap/internal/netif"
	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// Connect forms the group that cfg describes and returns when all ranks are there. The context bounds
// Connect alone; the group lives until Close. Ranks that take nothing, because they are stopped and their sockets full, keep a failing
// Connect for up to 3 s beyond it.
//
// If it fails on one rank for a reason that concerns all (a rank number taken twice, another size, a
// rank that died, the deadline), it fails on all that can be reached, and says the same everywhere: at
// the deadline, which ranks did not register.
func Connect(ctx context.Context, cfg Config) (Group, error) {
	if cfg.Listener != nil && cfg.Rank != 0 {
		cfg.Listener.Close()
		cfg.Listener = nil
	}
	g, err := connect(ctx, &cfg)
	if err != nil {
		return nil, fmt.Errorf("bootstrap: rank %d of %d: %w", cfg.Rank, cfg.Size, err)
	}
	return g, nil
}

func connect(ctx context.Context, cfg *Config) (Group, error) {
	if cfg.Listener != nil {
		defer cfg.Listener.Close()
	}
	targets, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if cfg.Size == 1 {
		return Local(1)[0], nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Timeout,
		fmt.Errorf("%v have passed (GCCL_TIMEOUT)", cfg.Timeout))
	defer cancel()
	g := newGroup(cfg)
	if err := form(ctx, g, cfg, targets); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// form takes g from nothing to a group that is ready for use.
func form(ctx context.Context, g *group, cfg *Config, targets []meet.Target) error {
	if err := ReserveFiles(g.fdBudget(), cfg.Logger); err != nil {
		return err
	}
	self := wire.Identity{PID: uint32(os.Getpid())}
	var err error
	if self.Host, err = os.Hostname(); err != nil {
		self.Host = "unknown host"
	}
	var b board
	if cfg.Rank == 0 && cfg.Port != nil {
		return host(ctx, g, cfg.Port.gate.Open(meet.NewBadge(cfg.Secret, cfg.RunID, cfg.Epoch), wire.Register, 0), self, cfg)
	}
	if cfg.Root == "" && !(cfg.Rank == 0 && cfg.Listener != nil && !cfg.hasBoard()) {
		if b, err = openBoard(ctx, cfg); err != nil {
			return err
		}
		defer b.close(ctx)
	}
	if cfg.Rank == 0 {
		listeners, err := listenersOf(ctx, b, cfg, targets)
		if err != nil {
			return err
		}
		cfg.warnOpen()
		d := meet.Open(meet.NewBadge(cfg.Secret, cfg.RunID, cfg.Epoch), wire.Register, 0, g.log, listeners)
		return cfg.hintLoopback(targets, host(ctx, g, d, self, cfg))
	}
	var conn *wire.Conn
	if b != nil {
		conn, err = follow(ctx, b, cfg)
	} else {
		conn, err = reach(ctx, cfg, targets)
	}
	if err != nil {
		return err
	}
	cfg.warnOpen()
	return join(ctx, g, cfg, conn, self)
}

// hintLoopback adds to a failure of rank 0 that ranks of other hosts cannot find it where it was told to
// listen. Whether they were told the same is not known before.
func (cfg *Config) hintLoopback(targets []meet.Target, err error) error {
	if err == nil || len(targets) == 0 || cfg.AllowLoopback || cfg.Size == cfg.LocalSize {
		return err
	}
	for _, t := range targets {
		if !t.IsLoopback() {
			return err
		}
	}
	return fmt.Errorf("%w (rank 0 was told %s, which leads to no other host: set GCCL_ROOT to an address of this host)", err, cfg.Root)
}

// warnOpen says that the job is not protected.
func (cfg *Config) warnOpen() {
	if cfg.Secret == "" && cfg.Rank == 0 {
		cfg.Logger.Warn("the job has no secret: its handshakes keep out strays, not attackers; set GCCL_SECRET")
	}
}

// fdBudget returns how many file descriptors a rank opens at most while it connects: for its listeners,
// for the root and the parent, for its children, and at the root for everybody.
func (g *group) fdBudget() int {
	if g.rank == 0 {
		return 2 + g.size - 1
	}
	return 4 + len(g.place.children)
}

// listenersOf returns the sockets on which rank 0 accepts.
func listenersOf(ctx context.Context, b board, cfg *Config, targets []meet.Target) ([]net.Listener, error) {
	if b != nil {
		return announce(ctx, b, cfg)
	}
	return listenRoot(ctx, cfg, targets)
}

// host takes g from a door, which it closes, to a root with children.
func host(ctx context.Context, g *group, d *meet.Door, self wire.Identity, cfg *Config) error {
	defer d.Close()
	r, err := register(ctx, g, d, self, cfg)
	if err != nil {
		return err
	}
	if err := r.assign(ctx); err != nil {
		return err
	}
	_, err = g.collective(ctx, wire.Barrier, nil)
	return err
}

// hasBoard says whether there is a place where rank 0 puts up its address.
func (cfg *Config) hasBoard() bool {
	return cfg.Store != nil || cfg.Rendezvous != "" || cfg.PMIFD != 0
}

// scattered says whether the ranks are known to be on several hosts.
func (cfg *Config) scattered() bool {
	return cfg.LocalSize > 0 && cfg.LocalSize < cfg.Size && !cfg.AllowLoopback
}

// oneHost says whether all ranks are known to be on this host, so that a loopback address may be told
// to others: by their number, or because all have to reach a root on loopback.
func (cfg *Config) oneHost() bool {
	return cfg.LocalSize == cfg.Size || cfg.AllowLoopback || cfg.loopbackRoot()
}

// loopbackRoot says whether all ranks have to reach the root on loopback, so that they share it: that they are on one
// host does not say so, as they may be in network namespaces of their own.
func (cfg *Config) loopbackRoot() bool {
	targets, err := meet.ParseTargets(cfg.Root)
	return err == nil && !slices.ContainsFunc(targets, func(t meet.Target) bool { return !t.IsLoopback() })
}

// check validates the configuration, fills in defaults and returns the root's addresses.
func (cfg *Config) check() ([]meet.Target, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("%w: a rank must be from 0 to size-1", ErrConfig)
	}
	if cfg.Size > maxSize {
		return nil, fmt.Errorf("%w: at most %d ranks", ErrConfig, maxSize)
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	if cfg.Alarm == nil {
		cfg.Alarm = cfg.Logger
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	if cfg.Size == 1 {
		return nil, nil
	}
	if err := cfg.checkInterface(); err != nil {
		return nil, err
	}
	if cfg.ListenPorts != "" {
		if _, _, err := meet.ParsePorts(cfg.ListenPorts); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	if cfg.Root == "" {
		if cfg.hasBoard() || cfg.Rank == 0 && (cfg.Listener != nil || cfg.Port != nil) {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: nothing says where rank 0 is: set GCCL_ROOT=host:port or GCCL_RENDEZVOUS", ErrConfig)
	}
	targets, err := meet.ParseTargets(cfg.Root)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if ip, err := netip.ParseAddr(t.Host); err == nil && ip.IsUnspecified() {
			return nil, fmt.Errorf("%w: root %s is no address that one can connect to", ErrConfig, cfg.Root)
		}
		// Some launchers tell rank 0 "localhost" and the others its real name.
		if cfg.scattered() && t.IsLoopback() && (cfg.Rank != 0 || t.IsIP()) {
			return nil, fmt.Errorf("%w: root %s is a loopback address, but of %d ranks only %d are on this host: set GCCL_ROOT to an address of rank 0's host",
				ErrConfig, cfg.Root, cfg.Size, cfg.LocalSize)
		}
	}
	return targets, nil
}

// maxSize bounds the ranks of a group, and with it what a peer can make this process allocate.
const maxSize = 1 << 20

// checkInterface finds a wrong interface filter on every rank, whether or not this one needs it.
func (cfg *Config) checkInterface() error {
	if cfg.Interface == "" {
		return nil
	}
	filter, err := netif.ParseFilter(cfg.Interface)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	all, err := netif.System()
	if err != nil {
		return err
	}
	if _, err := filter.Select(all); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}
