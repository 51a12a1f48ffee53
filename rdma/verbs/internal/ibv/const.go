package ibv

import "fmt"

// Opcodes of send work requests (enum ibv_wr_opcode).
const (
	OpWrite    = 0
	OpWriteImm = 1
	OpSendImm  = 3
)

// Flags of send work requests (enum ibv_send_flags).
const (
	SendSignaled = 2
	SendInline   = 8
)

// Access flags of memory regions and queue pairs (enum ibv_access_flags).
const (
	AccessLocalWrite      = 1
	AccessRemoteWrite     = 1 << 1
	AccessRelaxedOrdering = 1 << 20
)

// States of a queue pair (enum ibv_qp_state).
const (
	QPReset = 0
	QPInit  = 1
	QPRTR   = 2
	QPRTS   = 3
	QPErr   = 6
)

// Bits that tell ibv_modify_qp which attributes are set (enum ibv_qp_attr_mask).
const (
	MaskState       = 1 << 0
	MaskAccess      = 1 << 3
	MaskPKeyIndex   = 1 << 4
	MaskPort        = 1 << 5
	MaskAV          = 1 << 7
	MaskPathMTU     = 1 << 8
	MaskTimeout     = 1 << 9
	MaskRetryCnt    = 1 << 10
	MaskRNRRetry    = 1 << 11
	MaskRQPSN       = 1 << 12
	MaskMaxRdAtomic = 1 << 13
	MaskMinRNRTimer = 1 << 15
	MaskSQPSN       = 1 << 16
	MaskMaxDestRd   = 1 << 17
	MaskDestQPN     = 1 << 20
)

const (
	qptRC = 2

	// PortActive is PortAttr.State of a usable port (IBV_PORT_ACTIVE).
	PortActive = 4
	// LinkInfiniBand and LinkEthernet are values of PortAttr.LinkLayer.
	LinkInfiniBand = 1
	LinkEthernet   = 2
)

// PortStateName names a value of PortAttr.State.
func PortStateName(s uint32) string {
	names := [...]string{"nop", "down", "init", "armed", "active", "active-defer"}
	if int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("state %d", s)
}

// Status is the status of a work completion (enum ibv_wc_status).
type Status uint32

// The statuses that the provider tells apart.
const (
	Success       Status = 0
	LocalQPOp     Status = 2
	Flushed       Status = 5
	RemoteInvalid Status = 9
	RemoteAccess  Status = 10
	RemoteOp      Status = 11
	RetryExceeded Status = 12
	RNRExceeded   Status = 13
)

var statusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "work request flushed", "memory window bind error", "bad response",
	"local access error", "remote invalid request", "remote access error", "remote operation error",
	"transport retry counter exceeded", "receiver-not-ready retry counter exceeded", "local RDD violation",
	"remote invalid RD request", "remote abort", "invalid EE context number", "invalid EE context state",
	"fatal error", "response timeout", "general error", "tag matching error", "tag matching rendezvous incomplete",
}

func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("status %d", uint32(s))
}

// Event is the type of an asynchronous event (enum ibv_event_type).
type Event uint32

// The events that the provider acts on.
const (
	EventCQErr       Event = 0
	EventQPFatal     Event = 1
	EventQPReqErr    Event = 2
	EventQPAccessErr Event = 3
	EventDeviceFatal Event = 8
	EventPortActive  Event = 9
	EventPortErr     Event = 10
)

var eventNames = [...]string{
	"CQ error", "QP fatal error", "QP request error", "QP access error", "communication established",
	"send queue drained", "path migrated", "path migration failed", "device fatal error", "port active",
	"port down", "LID changed", "P_Key table changed", "subnet manager changed", "SRQ error", "SRQ limit reached",
	"last WQE reached", "client reregistration", "GID table changed", "WQ fatal error",
}

func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return fmt.Sprintf("event %d", uint32(e))
}
