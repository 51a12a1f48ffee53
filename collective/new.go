package collective

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/internal/cpu"
	"github.com/gccl/gccl/internal/executor"
	"github.com/gccl/gccl/internal/link"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Init makes this process's communicator from the environment that its launcher left: GCCL_RANK,
// GCCL_SIZE and GCCL_ROOT, or torchrun's, MPI's, Slurm's and others' variables (docs/launchers.md).
// Without any it is the only rank.
func Init(ctx context.Context) (*Comm, error) {
	cfg, err := ConfigFromEnv(os.LookupEnv)
	if err != nil && cfg.Bootstrap.Size < 2 {
		return nil, err
	}
	cfg.refused = err
	return New(ctx, cfg)
}

// New makes a communicator. All its ranks must call it; it returns when all are connected, when ctx
// ends or cfg.Bootstrap.Timeout has passed (0: bootstrap.DefaultTimeout), or with the first rank's failure. When it fails it tells the
// others why. For peers that take nothing (stopped, with full sockets) that keeps it beyond ctx, for 4 s at most; over
// verbs the kernel's search for a peer's address may add 2 s.
//
// Errors: ErrInvalid (a setting), ErrUnavailable (nothing connects two ranks), ErrMismatch (settings, builds or
// numbers of ranks differ), ErrPeerLost, ctx's, and bootstrap's ErrConfig and ErrTimeout.
func New(ctx context.Context, cfg Config) (_ *Comm, err error) {
	cfg.defaults()
	heir := cfg.heir != nil // whose maker says what it means that somebody is missing
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(cfg.Bootstrap.Timeout, bootstrap.DefaultTimeout),
		fmt.Errorf("the ranks could not all be connected in time (GCCL_TIMEOUT): %w", context.DeadlineExceeded))
	defer cancel()
	c := &Comm{cfg: cfg, log: cfg.Logger, catalog: catalog(), plans: map[planKey]*planned{}}
	c.intact, c.breakOff = context.WithCancelCause(context.Background())
	defer func() {
		if err != nil {
			if !heir {
				err = ofThisPackage(err)
			}
			err = errors.Join(err, c.release())
		}
	}()
	// What goes wrong before the ranks have met is told to them, who would else wait for this one.
	failed := cmp.Or(cfg.refused, cfg.check())
	if failed == nil {
		failed = c.loadTuning()
	}
	c.inherit()
	if c.group = cfg.Group; c.group == nil {
		if cfg.Bootstrap.Size == 0 {
			cfg.Bootstrap.Size = 1
		}
		if c.group, err = bootstrap.Connect(ctx, cfg.Bootstrap); err != nil {
			return nil, errors.Join(failed, err)
		}
		c.ownGroup = true
	}
	c.rank, c.size = c.group.Rank(), c.group.Size()
	c.p2pSeq = make([]transferSeq, c.size)
	offered, err := c.offer()
	c.openPort(ctx)
	if failed = errors.Join(failed, err); failed != nil {
		failed = &unable{failed}
	}
	if err := c.meet(ctx, offered, failed); err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		return nil, err
	}
	c.openSession()
	c.checkDumpDir(tryDir)
	return c, nil
}

// alarm is where what a user must know is said, even if nothing else is.
func (c *Comm) alarm() *zap.Logger { return cmp.Or(c.cfg.Bootstrap.Alarm, c.log) }

// ofThisPackage has a failure to meet match this package's kinds, too, whose text it keeps.
func ofThisPackage(err error) error {
	for _, k := range []struct{ kind, theirs error }{
		{ErrPeerLost, bootstrap.ErrPeerLost}, {ErrPeerLost, bootstrap.ErrPeerClosed}, {ErrPeerLost, rdma.ErrPeerLost}, {ErrMismatch, bootstrap.ErrMismatch},
	} {
		if errors.Is(err, k.theirs) && !errors.Is(err, k.kind) {
			err = &kindred{err, k.kind}
		}
	}
	return err
}

// kindred is an error of another kind as well.
type kindred struct {
	error
	kind error
}

func (k *kindred) Unwrap() []error { return []error{k.error, k.kind} }

// NewLocal makes the n communicators of a job whose ranks are goroutines of this process, over the
// loopback provider. cfg's Group, Bootstrap and Provider are not used.
func NewLocal(ctx context.Context, n int, cfg Config) ([]*Comm, error) {
	if n < 1 {
		return nil, invalid("a job of %d ranks", n)
	}
	comms := make([]*Comm, n)
	cfg.shared = &shared{}
	cfg.network, cfg.local, cfg.yield = loopback.NewNetwork(), bootstrap.NewLocalNet(), runtime.Gosched
	g, ctx := errgroup.WithContext(ctx)
	for r, group := range bootstrap.Local(n) {
		rc := cfg
		rc.Group = group
		g.Go(func() (err error) {
			comms[r], err = New(ctx, rc)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, c := range comms {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
		return nil, err
	}
	return comms, nil
}

// maxStash bounds the memory for messages that arrive before their Recv: beyond it senders wait.
const maxStash = 1 << 30

// offer finds out which providers this rank can use. verbs is opened for that, since only then one
// knows, unless the kernel has no device and nobody has asked for verbs by name; one that cannot work here is left out, loudly if it was named, and refused under Strict.
func (c *Comm) offer() (names []string, err error) {
	if c.cfg.network != nil {
		return []string{"loopback"}, nil
	}
	list, err := wanted(c.cfg.Provider)
	if err != nil {
		return nil, err
	}
	named := c.cfg.Provider != "" && c.cfg.Provider != "auto"
	var errs []error
	for _, name := range list {
		if name == "verbs" {
			if !named && !mayHaveVerbs() {
				c.log.Info("provider left out: the kernel has no RDMA device", zap.String("provider", name))
				continue
			}
			if _, err := c.devices.get(name, &c.cfg); err != nil {
				errs = append(errs, err)
				if named {
					c.alarm().Warn("provider left out", zap.String("provider", name), zap.Error(err))
				} else {
					c.log.Info("provider left out", zap.String("provider", name), zap.Error(err))
				}
				continue
			}
		}
		names = append(names, name)
	}
	if len(errs) > 0 && (c.cfg.Strict && named || len(names) == 0) {
		return nil, errors.Join(errs...)
	}
	return names, nil
}

// meet exchanges hellos. A rank that has failed takes part and returns its own error.
func (c *Comm) meet(ctx context.Context, offered []string, failed error) error {
	h := hello{own: own{Pid: os.Getpid(), Addrs: c.standby.addrs()}, Version: helloVersion, HostID: c.cfg.HostID, Kernel: kernelID(), Network: networkID(), CPUs: cpu.Allowed(), Providers: offered, Agreed: agreed(&c.cfg, &c.tuning)}
	h.Host, _ = os.Hostname()
	if h.HostID == "" {
		h.HostID = h.Kernel
	}
	if h.Network != "" {
		h.HostID += "/" + h.Network
	}
	if c.rank == 0 {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		h.Epoch = binary.LittleEndian.Uint64(b[:])
	}
	if failed != nil {
		h.Failed = failed.Error()
	}
	blob, err := h.encode()
	if err != nil {
		return err
	}
	blobs, err := c.group.AllGather(ctx, blob)
	if failed != nil || err != nil {
		return errors.Join(failed, err)
	}
	peers, err := c.cfg.shared.peers(blobs)
	if err != nil {
		return err
	}
	c.peers = asSeen(peers, c.rank)
	if n := slices.Index(c.standby.former, -1); n >= 0 {
		if err := apart(c.peers, n); err != nil {
			return err
		}
	}
	c.epoch = c.peers[0].Epoch
	c.crowding = crowding(c.peers)
	c.geo = geometry(&c.cfg, c.peers)
	if b := c.cfg.BufferBytes; b > 0 && b < 64*c.geo.Slots {
		return nobodys(invalid("GCCL_BUFFSIZE is %d: %d slots need at least 64 bytes each", b, c.geo.Slots))
	}
	if err := c.geo.Check(); err != nil {
		return nobodys(fmt.Errorf("%w: %v", ErrInvalid, err))
	}
	return c.tune()
}

// connect makes the links and the engine.
func (c *Comm) connect(ctx context.Context) error {
	devs := make([]rdma.Device, c.size)
	var others []int
	shared := false // some rank shares memory
	for r := range devs {
		if r == c.rank {
			continue
		}
		others = append(others, r)
		name, err := c.providerFor(r)
		if err != nil {
			return err
		}
		if devs[r], err = c.devices.get(name, &c.cfg); err != nil {
			return err
		}
		shared = shared || name == "shm"
	}
	later, touch := lazy(&c.cfg, c.peers), c.geo.Lanes
	if later {
		touch = 0 // of many links, few have long messages
	} else if err := c.reserveFiles(others); err != nil {
		return err
	}
	var err error
	c.mesh, err = link.New(link.Config{
		Rank: c.rank, Size: c.size, Geometry: c.geo, Bell: c.bell(),
		Device:   func(r int) rdma.Device { return devs[r] },
		Describe: c.describe, NoMap: c.cfg.noMap, Touch: touch, Sparse: later, Lazy: later, Attach: shared && c.attaches(),
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if later {
		c.openPairs()
	} else {
		blobs, err := c.group.AllGather(ctx, c.mesh.Blob())
		if err != nil {
			return err
		}
		if err := c.mesh.Connect(ctx, blobs); err != nil {
			return err
		}
	}
	if err := c.group.Barrier(ctx); err != nil {
		return err
	}
	if (c.cfg.network == nil || c.cfg.pulse) && c.size > 1 && !c.cfg.bare { // goroutines of one process stop together
		c.pulse.start(c.beat)
	}
	o := executor.Options{Wait: c.waiting(), LendMin: cmp.Or(c.cfg.LendMin, lendLeast), StashMax: maxStash}
	for r := range c.size {
		if p := c.mesh.Peer(r); p != nil {
			o.Transfers = append(o.Transfers, p.Receiver(c.geo.Lanes-1))
		}
	}
	c.engine = executor.New(c.mesh, o)
	if c.cfg.DumpSignal {
		c.dumpOnSignal()
	}
	c.log.Info("communicator ready", c.fields()...)
	return nil
}

// bell is the bell of the device whose peers ring it, or one of its own.
func (c *Comm) bell() rdma.Bell {
	for _, d := range c.devices.list {
		if b, ok := d.(rdma.BellDevice); ok {
			return b.Bell()
		}
	}
	return link.NewBell()
}
