package ibv

// The structures of <infiniband/verbs.h> on 64-bit machines. Pointers are uintptr: they lead to
// arenas or to the library's own memory, never to the Go heap. Offsets and sizes have been the same
// in every rdma-core release from 13 (2017) to 64 (2026); layout_cgo.go holds them against an
// installed header.

// SGE is struct ibv_sge.
type SGE struct {
	Addr uint64
	Len  uint32
	LKey uint32
}

// SendWR is struct ibv_send_wr for RDMA writes and sends.
type SendWR struct {
	ID         uint64
	Next       uintptr
	SG         uintptr
	NumSGE     int32
	Opcode     uint32
	Flags      uint32
	Imm        uint32 // network byte order
	RemoteAddr uint64
	RKey       uint32
	_          [76]byte
}

// RecvWR is struct ibv_recv_wr.
type RecvWR struct {
	ID     uint64
	Next   uintptr
	SG     uintptr
	NumSGE int32
	_      int32
}

// WC is struct ibv_wc. With a bad Status only ID, Status, VendorErr and QPN are valid.
type WC struct {
	ID        uint64
	Status    Status
	Opcode    uint32
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // network byte order
	QPN       uint32
	SrcQP     uint32
	Flags     uint32
	_         [8]byte
}

// QPCap is struct ibv_qp_cap.
type QPCap struct{ MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline uint32 }

// QPInitAttr is struct ibv_qp_init_attr.
type QPInitAttr struct {
	Context, SendCQ, RecvCQ, SRQ uintptr
	Cap                          QPCap
	Type                         uint32
	SigAll                       int32
	_                            uint32
}

// AHAttr is struct ibv_ah_attr, an address vector; the first 24 bytes are its struct ibv_global_route.
type AHAttr struct {
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
	DLID         uint16
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	PortNum      uint8
	_            uint8
}

// QPAttr is struct ibv_qp_attr.
type QPAttr struct {
	State, CurState, PathMTU, PathMigState   uint32
	QKey, RQPSN, SQPSN, DestQPN, AccessFlags uint32
	Cap                                      QPCap
	AH, AltAH                                AHAttr
	PKeyIndex, AltPKeyIndex                  uint16
	EnSQD, SQDraining                        uint8
	MaxRdAtomic, MaxDestRdAtomic             uint8
	MinRNRTimer, PortNum, Timeout, RetryCnt  uint8
	RNRRetry, AltPortNum, AltTimeout         uint8
	_                                        uint8
	RateLimit                                uint32
	_                                        uint32
}

// PortAttr is the part of struct ibv_port_attr that the exported ibv_query_port fills in.
type PortAttr struct {
	State, MaxMTU, ActiveMTU             uint32
	GIDTableLen                          int32
	CapFlags, MaxMessage                 uint32
	BadPKeys, QKeyViolations             uint32
	PKeyTableLen, LID, SMLID             uint16
	LMC, MaxVL, SMSL, SubnetTimeout      uint8
	InitTypeReply, ActiveWidth           uint8
	ActiveSpeed, PhysState, LinkLayer, _ uint8
}

// GIDEntry is struct ibv_gid_entry.
type GIDEntry struct {
	GID     [16]byte
	Index   uint32
	Port    uint32
	Type    uint32 // 0 InfiniBand, 1 RoCE v1, 2 RoCE v2
	IfIndex uint32 // of the network interface, on RoCE
}

// DeviceAttr is struct ibv_device_attr.
type DeviceAttr struct {
	FWVer                          [64]byte
	NodeGUID, SysImageGUID         uint64
	MaxMRSize, PageSizeCap         uint64
	VendorID, VendorPartID, HWVer  uint32
	MaxQP, MaxQPWR                 int32
	CapFlags                       uint32
	MaxSGE, MaxSGERd               int32
	MaxCQ, MaxCQE, MaxMR, MaxPD    int32
	_                              [20]int32
	MaxPKeys                       uint16
	LocalCAAckDelay, PhysPortCount uint8
	_                              uint32
}

// asyncEvent is struct ibv_async_event.
type asyncEvent struct {
	Element uintptr
	Type    Event
	_       uint32
}

// Byte offsets in structures that the library allocates.
const (
	ctxPollCQ      = 96  // ibv_context.ops.poll_cq
	ctxReqNotifyCQ = 104 // .req_notify_cq
	ctxPostSend    = 208 // .post_send
	ctxPostRecv    = 216 // .post_recv
	ctxAsyncFD     = 268
	qpNum          = 52 // ibv_qp.qp_num
	mrLKey         = 36 // ibv_mr.lkey
	mrRKey         = 40
	channelFD      = 8  // ibv_comp_channel.fd
	cqCQE          = 28 // ibv_cq.cqe

	sizeofGIDEntry = 32
)
