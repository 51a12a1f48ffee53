// Package bootstrap lets the ranks of one communicator find each other and exchange opaque bytes.
//
// It is the control plane: who is there, how many, and what each rank wants the others to know
// (endpoint addresses, remote keys, capabilities). Collectives in flight never touch it. The package
// knows bytes only; it knows neither RDMA nor tensors.
//
// # Words
//
// A job is the set of processes that one launcher started. Its run id and epoch name it: the run id
// names the job, the epoch one incarnation of its communicator (it grows with every restart). The root
// is rank 0 of the communicator, at whose address the others register. The secret is a string that the
// processes of a job share and strangers do not know; it keys the handshake of every connection.
//
// # From nothing to a group
//
//	lookup environment ─▶ Config ─▶ Connect ─▶ Group ─▶ AllGather, Barrier, …
//
// [FromEnv] reads what the launcher left in the environment (docs/launchers.md has the table).
// [Connect] forms the group over TCP (docs/wire-bootstrap.md specifies every byte). [Local] forms one
// out of goroutines.
//
// # Several groups
//
// The ranks of a group make further groups without a launcher's help: the new root listens on any port
// and tells the others its address with AllGather. [Split] does that.
package bootstrap

import (
	"context"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/gccl/gccl/bootstrap/store"
)

// Group is the control plane of one communicator, as one of its ranks sees it.
//
// All ranks of a group call the same operations in the same order. One goroutine at a time may be
// inside AllGather or Barrier; Close may be called from any goroutine at any time and ends them.
//
// A group that has failed stays failed: after any error, a lapsed context included, later calls return
// an error with the first cause. Errors satisfy errors.Is with the sentinels of this package; when one
// rank is to blame, errors.As with [*RankError] names it.
type Group interface {
	// Rank returns this rank's number, 0 ≤ Rank < Size.
	Rank() int

	// Size returns the number of ranks.
	Size() int

	// AllGather gives mine to every rank and returns what every rank gave: result[r] holds rank r's
	// bytes and has length 0 if r gave nothing. The lengths may differ; each is limited to
	// MaxPayload/Size. mine is not kept or changed; the result belongs to the caller.
	//
	// AllGather returns when all ranks have called it, when ctx is done, or at once when a rank died,
	// closed its group or disagrees about the operation; or 2 s later, if there are ranks that take nothing (stopped, with full sockets)
	// of those that it tells.
	AllGather(ctx context.Context, mine []byte) ([][]byte, error)

	// Barrier returns when all ranks have called it. It fails as AllGather does.
	Barrier(ctx context.Context) error

	// Close leaves the group and frees its resources. It is local and bounded: it waits for no other
	// rank, but for up to 2 s for sockets that are full to take its last word. A rank that still needs this one gets an error that says that this rank closed. Close may
	// be called more than once.
	Close() error
}

// MaxPayload is the greatest total of bytes that one AllGather may carry, over all ranks.
const MaxPayload = 1 << 30

// DefaultTimeout bounds Connect if [Config.Timeout] is zero.
const DefaultTimeout = 5 * time.Minute

// Config says who this process is and how it finds the others. [FromEnv] fills it from a launcher's
// environment; fields can be changed before [Connect].
type Config struct {
	// Rank and Size place this process in the communicator: 0 ≤ Rank < Size.
	Rank, Size int

	// LocalRank and LocalSize place it on its host. LocalSize 0 means unknown; Size == LocalSize
	// means that the whole job is on one host, and only then is a loopback address told to others.
	LocalRank, LocalSize int

	// Root says where rank 0 listens: "host:port", "host:first-last" for a range of ports of which
	// rank 0 takes the first free one, "[v6]:port", or several of these with commas between them,
	// which are tried in parallel. A host name may resolve late and to several addresses.
	Root string

	// RootIsGuess marks a Root that was concluded from a list of hosts. Rank 0 then fails with a
	// clear text if it finds itself on another host.
	RootIsGuess bool

	// Rendezvous names a key-value store in which rank 0, listening on any port, publishes its
	// addresses: "file:///dir" (a directory that all ranks share) or "tcp://host:port" (a server, see
	// store.Serve). It is used if Root is empty, and for newcomers (Publish).
	Rendezvous string

	// Store is such a store, opened by the caller, for those that have no URL here, like etcd. It
	// goes before Rendezvous and stays open.
	Store store.Store

	// PMIFD is the file descriptor of a process manager that speaks PMI-1, through which rank 0
	// publishes its addresses if neither Root nor a store is given. 0: none. It serves one Connect of
	// a process; see the package documentation for further groups.
	PMIFD int

	// Listener, if not nil, is the socket on which rank 0 accepts, bound beforehand so that nobody
	// else can take the port between choice and use. Other ranks ignore it. Connect closes it.
	Listener net.Listener

	// Port, if not nil, is where rank 0 accepts beside what else happens there; Root then is for the
	// others, its Addrs. It stays open. Other ranks do not use it: to them any port says that rank 0's
	// refuses them until this group is formed there.
	Port *Port

	// Secret authenticates the ranks to each other. Empty: derived from RunID, which keeps out
	// strangers and old jobs but nobody who means harm; Connect warns.
	Secret string

	// RunID names the job and Epoch its incarnation; processes with others are refused.
	RunID string
	Epoch uint64

	// Interface selects the network interfaces whose addresses are told to other ranks, in NCCL's
	// syntax: "eth,ib" prefixes, "=eth0,ib0" exact names, "^docker" all but these prefixes, "^=eth1".
	// Empty: all that are up, loopback and docker bridges last.
	Interface string

	// ListenPorts is the port or range of ports ("30000-30099") that ranks other than the root, and a
	// root whose port is published, listen on. Empty: any free port.
	ListenPorts string

	// AllowLoopback permits a loopback root although Size > LocalSize, for nodes that are simulated
	// on one host.
	AllowLoopback bool

	// Timeout bounds Connect as a whole; 0 means DefaultTimeout. A context with an earlier deadline
	// wins.
	Timeout time.Duration

	// Logger receives what a user may need to know; nil means none.
	Logger *zap.Logger

	// Alarm receives, while Connect waits for long, whom it waits for and who was refused meanwhile; nil
	// means Logger.
	Alarm *zap.Logger
}
