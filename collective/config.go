package collective

import (
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/loopback"
	"go.uber.org/zap"
)

// Config describes a communicator. [New] makes one of a single rank from the zero value. Fields that
// carry a setting's name are filled from the environment by [ConfigFromEnv], as are those that say who
// this rank is; [Init] does the same without a Config. `gccl env` prints all settings.
type Config struct {
	// Bootstrap says who this rank is and how it finds the others. Ignored if Group is given.
	Bootstrap bootstrap.Config
	// Group is the control plane to use instead; the caller closes it, after the communicator.
	Group bootstrap.Group

	// Provider is the list of providers to try for each pair of ranks, in order: "shm,verbs,tcp";
	// "^tcp": all but; "auto" or empty: shm on one host, else verbs, else tcp. (GCCL_PROVIDER)
	Provider string
	// Strict refuses to start where a provider that Provider names cannot be opened; without it, it is left
	// out with a warning. Which of several that work is used is up to the pair of ranks. (GCCL_STRICT)
	Strict bool
	// Timeout bounds every call beside its context; 0: 10 minutes, negative: none. (GCCL_TIMEOUT)
	Timeout time.Duration
	// Channels is how many copies of an algorithm may run side by side; 0: 2. Between two ranks there are
	// max(Channels, 4)+1 lanes. (GCCL_NCHANNELS)
	Channels int
	// BufferBytes is the length of a ring buffer: each lane has one in either direction. 0: 2 MiB; less if
	// three or more ranks share memory, on one host; 4 MiB for two ranks of one host over tcp. So by default
	// a rank keeps 5 rings of at most 2 MiB for each peer, and over tcp and verbs as much again for what it
	// sends. Of links made when they are wanted (Lazy), pages that are never used take no memory, but over verbs. (GCCL_BUFFSIZE)
	BufferBytes int
	// Slots is how many slots it is divided into, a power of two; 0: as many as ranks, from 8 (16
	// across hosts) to 64. (GCCL_SLOTS)
	Slots int
	// Spin is how many polls a waiting rank makes before it yields its core; 0: chosen from cores and
	// ranks on the host, negative: none. (GCCL_SPIN)
	Spin int
	// Lazy is when links between ranks are made: > 0, when a call first wants them; < 0, all when the
	// communicator is made; 0: all of up to 8 ranks. The first Send to a rank over a link that is not
	// there returns after the rank has called Recv, or something else that wants the link. (GCCL_LAZY)
	Lazy int
	// CMA is whether this rank and others of its host, which want it, too, read long messages where they lie in each other's
	// memory (cross-memory attach, process_vm_readv). > 0: if the kernel lets them; where a security module (Yama) asks for
	// its leave, every process of the same user may trace this one then. < 0: never; all are copied through shared memory.
	// 0: if the kernel lets them as it is, and that is faster here. A sender waits until its message has been read. Tensors in
	// memory that the kernel reads for nobody (memfd_secret, device mappings) fail the call unless it is < 0. (GCCL_CMA)
	CMA int
	// LendMin is the shortest transfer in bytes that is read in place, from registered memory and, with CMA, from
	// any, instead of being copied; 0: 2 to 128 KiB, by the kind of call and by whether ranks outnumber
	// cores. (GCCL_LEND_MIN)
	LendMin int
	// Algo restricts the choice of algorithms: "ring", "allreduce:0-16K=OneShot,16K-=ring"; see
	// [tuner.Rules]. (GCCL_ALGO)
	Algo string
	// Reproducible restricts reductions to algorithms that all give the same bits, so that results
	// depend only on the data and the number of ranks. (GCCL_REPRODUCIBLE)
	Reproducible bool
	// TuningFile is a file of measured times, written by `gccl tune`. (GCCL_TUNING_FILE)
	TuningFile string
	// HostID overrides the identity of this host, for simulated hosts. Ranks in different network namespaces are of
	// different hosts in any case. (GCCL_HOSTID)
	HostID string
	// TCPEncrypt runs TLS 1.3 on the connections of the tcp provider. Nobody's certificate is needed: both
	// ends prove that they know the job's secret and what the ranks exchanged at bootstrap. It must be
	// the same everywhere. (GCCL_TCP_ENCRYPT)
	TCPEncrypt bool
	// TCPChecksum has this rank protect every payload that it sends over tcp with a CRC-32C beside TCP's own
	// weak sum; the receiver names the link whose data is damaged. (GCCL_TCP_CHECKSUM)
	TCPChecksum bool
	// TCPSockets is how many sockets a pair of ranks uses over tcp, up to 16: the smaller of their
	// numbers counts; 0: 1. (GCCL_TCP_SOCKETS)
	TCPSockets int
	// HCA selects RDMA devices, in the syntax of NCCL_IB_HCA. A rank uses the first active port that it admits:
	// the nearest card is not looked for, so that on a host of several each rank wants its own. (GCCL_IB_HCA)
	HCA string
	// IBQueuePairs is how many RDMA queue pairs a pair of ranks uses, up to 16, on the first two active ports that HCA
	// admits, or one if it is empty; 0: 1. The same on all ranks. (GCCL_IB_QPS)
	IBQueuePairs int
	// IBTimeout is how long RDMA waits for a peer, verbs.Options.Timeout: 1 to 31; 0: its default. (GCCL_IB_TIMEOUT)
	IBTimeout int
	// IBGIDIndex is the entry of the port's table of GIDs; nil: chosen by RoCE version, address family and
	// the peer's addresses. (GCCL_IB_GID_INDEX)
	IBGIDIndex *int
	// IBTrafficClass is the byte that RoCE v2 puts into the IP header, DSCP in its upper six bits; 0 to 255. (GCCL_IB_TC)
	IBTrafficClass int
	// IBServiceLevel is the InfiniBand service level, 0 to 15. (GCCL_IB_SL)
	IBServiceLevel int
	// IBPKeyIndex is the entry of the port's table of partition keys. (GCCL_IB_PKEY)
	IBPKeyIndex int
	// Heartbeat is how long a rank may show no sign of life while this rank waits for it, before it is
	// given up with ErrPeerLost: its process is stopped, by a debugger too, or starved, or its host is
	// cut off. 0: 10 seconds, and where more than 8 ranks share a core an eighth of their number times as long; negative: for ever. Every rank shows signs of life ten times a second,
	// whatever the provider and whether it is in a call or not; over tcp and verbs, where each costs a
	// write, more rarely if there are more than 32 peers, and half a second is the least. (GCCL_HEARTBEAT)
	Heartbeat time.Duration
	// Checksum has every message carry a CRC-32C of itself from the sender's slot to the receiver's,
	// whatever carries it; damage fails the call on all ranks with ErrCorrupt, which names the ranks, the lane
	// and the byte. All data is copied through slots then. The same on all ranks. (GCCL_CHECKSUM)
	Checksum bool
	// DumpDir is where a rank leaves its flight record (Comm.Dump) when a call fails: a file
	// gccl-EPOCH-rankN.json, for `gccl why`. Empty: nowhere. (GCCL_DUMP_DIR)
	DumpDir string
	// DumpSignal writes it at every SIGUSR1, too, to the directory of temporary files if DumpDir is
	// empty. (GCCL_DUMP_SIGNAL)
	DumpSignal bool
	// DevicePath says how network cards reach tensors in accelerators' memory: auto, dmabuf, peermem or
	// staged; empty: auto. See docs/device-memory.md. (GCCL_DEVICE_PATH)
	DevicePath string
	// CUDALibrary is the CUDA driver library to open; empty: libcuda.so.1. (GCCL_CUDA_LIBRARY)
	CUDALibrary string
	// Logger receives log lines; nil: none. ConfigFromEnv sets it if GCCL_DEBUG asks for them.
	Logger *zap.Logger

	// ignored are the variables of other libraries whose values are not understood, and why.
	ignored []string
	// refused is why the environment cannot be used: the other ranks are told.
	refused error
	// noMap posts writes even where peers' memory could be mapped; for tests.
	noMap bool
	// pulse has ranks over loopback show signs of life, too; for tests.
	pulse bool
	// still has a rank that waits sleep at once: a clock that stands while anybody polls (testing/synctest)
	// would never come to the moment when it does.
	still bool
	// bare leaves out fingerprints, the flight recorder and the pulse; for the benchmark of what they cost.
	bare bool
	// wrap, if not nil, replaces the loopback devices that are opened; for tests.
	wrap func(rank int, d rdma.Device) rdma.Device
	// network is where the loopback provider's devices meet; set by NewLocal.
	network *loopback.Network
	// shared is what the ranks of a process find out once for all; set by NewLocal.
	shared *shared
	// local is where their ports meet; set by NewLocal.
	local *bootstrap.LocalNet
	// heir is what a communicator that is recovered from another takes over.
	heir *heir
	// yield is what a rank does to let others run; set by NewLocal.
	yield func()
}

// scheduleLanes is the most lanes that an algorithm uses for one copy of itself (tree.AllReduceDouble:
// two trees, up and down). One more lane is kept for Send and Recv.
const scheduleLanes = 4

// lendLeast is the shortest transfer that is lent unless GCCL_LEND_MIN says otherwise.
const lendLeast = 2 << 10

func (c *Config) defaults() {
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.Channels == 0 {
		c.Channels = 2
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
}
