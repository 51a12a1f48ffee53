//go:build cgo && verbslayout

package ibv

// #include <infiniband/verbs.h>
import "C"

import "unsafe"

// Compile-time checks of abi.go against the installed header: arrays of unequal length do not assign.
//
//	CGO_ENABLED=1 go vet -tags verbslayout ./rdma/verbs/internal/ibv
var (
	_ [unsafe.Sizeof(SGE{})]byte        = [C.sizeof_struct_ibv_sge]byte{}
	_ [unsafe.Sizeof(SendWR{})]byte     = [C.sizeof_struct_ibv_send_wr]byte{}
	_ [unsafe.Sizeof(RecvWR{})]byte     = [C.sizeof_struct_ibv_recv_wr]byte{}
	_ [unsafe.Sizeof(WC{})]byte         = [C.sizeof_struct_ibv_wc]byte{}
	_ [unsafe.Sizeof(QPInitAttr{})]byte = [C.sizeof_struct_ibv_qp_init_attr]byte{}
	_ [unsafe.Sizeof(QPAttr{})]byte     = [C.sizeof_struct_ibv_qp_attr]byte{}
	_ [unsafe.Sizeof(AHAttr{})]byte     = [C.sizeof_struct_ibv_ah_attr]byte{}
	_ [unsafe.Sizeof(GIDEntry{})]byte   = [C.sizeof_struct_ibv_gid_entry]byte{}
	_ [unsafe.Sizeof(DeviceAttr{})]byte = [C.sizeof_struct_ibv_device_attr]byte{}
	_ [unsafe.Sizeof(asyncEvent{})]byte = [C.sizeof_struct_ibv_async_event]byte{}

	_ [unsafe.Offsetof(SendWR{}.Opcode)]byte            = [unsafe.Offsetof(C.struct_ibv_send_wr{}.opcode)]byte{}
	_ [unsafe.Offsetof(SendWR{}.RemoteAddr)]byte        = [unsafe.Offsetof(C.struct_ibv_send_wr{}.wr)]byte{}
	_ [unsafe.Offsetof(SendWR{}.RKey)]byte              = [unsafe.Offsetof(C.struct_ibv_send_wr{}.wr) + 8]byte{}
	_ [unsafe.Offsetof(RecvWR{}.NumSGE)]byte            = [unsafe.Offsetof(C.struct_ibv_recv_wr{}.num_sge)]byte{}
	_ [unsafe.Offsetof(WC{}.ByteLen)]byte               = [unsafe.Offsetof(C.struct_ibv_wc{}.byte_len)]byte{}
	_ [unsafe.Offsetof(WC{}.QPN)]byte                   = [unsafe.Offsetof(C.struct_ibv_wc{}.qp_num)]byte{}
	_ [unsafe.Offsetof(WC{}.Flags)]byte                 = [unsafe.Offsetof(C.struct_ibv_wc{}.wc_flags)]byte{}
	_ [unsafe.Offsetof(QPInitAttr{}.Type)]byte          = [unsafe.Offsetof(C.struct_ibv_qp_init_attr{}.qp_type)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.DestQPN)]byte           = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.dest_qp_num)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.AH)]byte                = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.ah_attr)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.PKeyIndex)]byte         = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.pkey_index)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.MinRNRTimer)]byte       = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.min_rnr_timer)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.Timeout)]byte           = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.timeout)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.RNRRetry)]byte          = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.rnr_retry)]byte{}
	_ [unsafe.Offsetof(QPAttr{}.RateLimit)]byte         = [unsafe.Offsetof(C.struct_ibv_qp_attr{}.rate_limit)]byte{}
	_ [unsafe.Offsetof(AHAttr{}.DLID)]byte              = [unsafe.Offsetof(C.struct_ibv_ah_attr{}.dlid)]byte{}
	_ [unsafe.Offsetof(AHAttr{}.PortNum)]byte           = [unsafe.Offsetof(C.struct_ibv_ah_attr{}.port_num)]byte{}
	_ [unsafe.Offsetof(PortAttr{}.MaxMessage)]byte      = [unsafe.Offsetof(C.struct_ibv_port_attr{}.max_msg_sz)]byte{}
	_ [unsafe.Offsetof(PortAttr{}.LID)]byte             = [unsafe.Offsetof(C.struct_ibv_port_attr{}.lid)]byte{}
	_ [unsafe.Offsetof(PortAttr{}.LinkLayer)]byte       = [unsafe.Offsetof(C.struct_ibv_port_attr{}.link_layer)]byte{}
	_ [unsafe.Offsetof(DeviceAttr{}.MaxQPWR)]byte       = [unsafe.Offsetof(C.struct_ibv_device_attr{}.max_qp_wr)]byte{}
	_ [unsafe.Offsetof(DeviceAttr{}.MaxCQE)]byte        = [unsafe.Offsetof(C.struct_ibv_device_attr{}.max_cqe)]byte{}
	_ [unsafe.Offsetof(DeviceAttr{}.PhysPortCount)]byte = [unsafe.Offsetof(C.struct_ibv_device_attr{}.phys_port_cnt)]byte{}
	_ [unsafe.Offsetof(GIDEntry{}.Type)]byte            = [unsafe.Offsetof(C.struct_ibv_gid_entry{}.gid_type)]byte{}
	_ [unsafe.Offsetof(asyncEvent{}.Type)]byte          = [unsafe.Offsetof(C.struct_ibv_async_event{}.event_type)]byte{}

	_ [ctxPollCQ]byte      = [unsafe.Offsetof(C.struct_ibv_context{}.ops) + unsafe.Offsetof(C.struct_ibv_context_ops{}.poll_cq)]byte{}
	_ [ctxReqNotifyCQ]byte = [unsafe.Offsetof(C.struct_ibv_context{}.ops) + unsafe.Offsetof(C.struct_ibv_context_ops{}.req_notify_cq)]byte{}
	_ [ctxPostSend]byte    = [unsafe.Offsetof(C.struct_ibv_context{}.ops) + unsafe.Offsetof(C.struct_ibv_context_ops{}.post_send)]byte{}
	_ [ctxPostRecv]byte    = [unsafe.Offsetof(C.struct_ibv_context{}.ops) + unsafe.Offsetof(C.struct_ibv_context_ops{}.post_recv)]byte{}
	_ [ctxAsyncFD]byte     = [unsafe.Offsetof(C.struct_ibv_context{}.async_fd)]byte{}
	_ [qpNum]byte          = [unsafe.Offsetof(C.struct_ibv_qp{}.qp_num)]byte{}
	_ [mrLKey]byte         = [unsafe.Offsetof(C.struct_ibv_mr{}.lkey)]byte{}
	_ [mrRKey]byte         = [unsafe.Offsetof(C.struct_ibv_mr{}.rkey)]byte{}
	_ [channelFD]byte      = [unsafe.Offsetof(C.struct_ibv_comp_channel{}.fd)]byte{}
	_ [cqCQE]byte          = [unsafe.Offsetof(C.struct_ibv_cq{}.cqe)]byte{}
)

// The constants of const.go, the same way; a negative difference does not convert.
const (
	_ = uint(AccessRelaxedOrdering-C.IBV_ACCESS_RELAXED_ORDERING) + uint(C.IBV_ACCESS_RELAXED_ORDERING-AccessRelaxedOrdering)
	_ = uint(OpWriteImm-C.IBV_WR_RDMA_WRITE_WITH_IMM) + uint(C.IBV_WR_RDMA_WRITE_WITH_IMM-OpWriteImm)
	_ = uint(OpSendImm-C.IBV_WR_SEND_WITH_IMM) + uint(C.IBV_WR_SEND_WITH_IMM-OpSendImm)
	_ = uint(SendSignaled-C.IBV_SEND_SIGNALED) + uint(C.IBV_SEND_SIGNALED-SendSignaled)
	_ = uint(SendInline-C.IBV_SEND_INLINE) + uint(C.IBV_SEND_INLINE-SendInline)
	_ = uint(QPErr-C.IBV_QPS_ERR) + uint(C.IBV_QPS_ERR-QPErr)
	_ = uint(qptRC-C.IBV_QPT_RC) + uint(C.IBV_QPT_RC-qptRC)
	_ = uint(MaskDestQPN-C.IBV_QP_DEST_QPN) + uint(C.IBV_QP_DEST_QPN-MaskDestQPN)
	_ = uint(MaskMaxDestRd-C.IBV_QP_MAX_DEST_RD_ATOMIC) + uint(C.IBV_QP_MAX_DEST_RD_ATOMIC-MaskMaxDestRd)
	_ = uint(MaskMinRNRTimer-C.IBV_QP_MIN_RNR_TIMER) + uint(C.IBV_QP_MIN_RNR_TIMER-MaskMinRNRTimer)
	_ = uint(RNRExceeded-C.IBV_WC_RNR_RETRY_EXC_ERR) + uint(C.IBV_WC_RNR_RETRY_EXC_ERR-RNRExceeded)
	_ = uint(EventPortErr-C.IBV_EVENT_PORT_ERR) + uint(C.IBV_EVENT_PORT_ERR-EventPortErr)
)
