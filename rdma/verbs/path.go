package verbs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// path is the way to a peer: an address vector and the GIDs at both ends.
type path struct {
	gid, peer gid // gid.index is -1 without a global route
	ah        ibv.AHAttr
	mtu       uint8
}

// path decides how packets to the peer go.
func (d *Device) path(a *address) (*path, error) {
	if a.link != d.link {
		names := map[uint8]string{ibv.LinkInfiniBand: "InfiniBand", ibv.LinkEthernet: "Ethernet"}
		return nil, fmt.Errorf("this port is %s, the peer's %s", names[d.link], names[a.link])
	}
	p := &path{mtu: min(d.mtu, a.mtu)}
	p.ah = ibv.AHAttr{SL: d.opts.ServiceLevel, PortNum: d.port}
	if d.link == ibv.LinkInfiniBand {
		if [8]byte(d.gids[0].addr[:8]) != [8]byte(a.gids[0].addr[:8]) {
			return nil, fmt.Errorf("the peer's InfiniBand subnet is another one (%v here, %v there): routing between subnets needs path records, which this provider does not ask for",
				d.gids[0].ip(), a.gids[0].ip())
		}
		p.gid.index = -1
		p.ah.DLID = a.lid
		return p, nil
	}
	var err error
	if p.gid, p.peer, err = chooseGIDs(d.gids, a.gids); err != nil {
		return nil, err
	}
	p.ah.IsGlobal = 1
	p.ah.DGID = p.peer.addr
	p.ah.SGIDIndex = uint8(p.gid.index)
	p.ah.HopLimit = 255
	p.ah.TrafficClass = d.opts.TrafficClass
	return p, nil
}

// initAttr is the first step of a queue pair.
func (d *Device) initAttr() ibv.QPAttr {
	return ibv.QPAttr{State: ibv.QPInit, PKeyIndex: d.opts.PKeyIndex, PortNum: d.port, AccessFlags: ibv.AccessRemoteWrite}
}

const initMask = ibv.MaskState | ibv.MaskPKeyIndex | ibv.MaskPort | ibv.MaskAccess

// timers are what decides when a queue pair gives up.
type timers struct{ timeout, retry, rnrRetry, minRNR uint8 }

func dataTimers(o *Options) timers {
	return timers{o.Timeout, o.RetryCount, o.RNRRetry, o.MinRNRTimer}
}

// connect takes a queue pair from INIT to RTS.
func (p *path) connect(qp *ibv.QP, mine, theirs queueAddress, t timers) error {
	err := qp.Modify(ibv.QPAttr{
		State: ibv.QPRTR, AH: p.ah, PathMTU: uint32(p.mtu), DestQPN: theirs.qpn, RQPSN: theirs.psn,
		MaxDestRdAtomic: 1, MinRNRTimer: t.minRNR,
	}, ibv.MaskState|ibv.MaskAV|ibv.MaskPathMTU|ibv.MaskDestQPN|ibv.MaskRQPSN|ibv.MaskMaxDestRd|ibv.MaskMinRNRTimer)
	if err != nil {
		return fmt.Errorf("to RTR: %w%s", err, p.hint(err))
	}
	err = qp.Modify(ibv.QPAttr{
		State: ibv.QPRTS, Timeout: t.timeout, RetryCnt: t.retry, RNRRetry: t.rnrRetry, SQPSN: mine.psn, MaxRdAtomic: 1,
	}, ibv.MaskState|ibv.MaskTimeout|ibv.MaskRetryCnt|ibv.MaskRNRRetry|ibv.MaskSQPSN|ibv.MaskMaxRdAtomic)
	if err != nil {
		return fmt.Errorf("to RTS: %w", err)
	}
	return nil
}

// hint explains what the kernel says when it cannot find the peer.
func (p *path) hint(err error) string {
	for _, e := range []unix.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ETIMEDOUT, unix.ENODEV} {
		if errors.Is(err, e) && p.gid.index >= 0 {
			return fmt.Sprintf(": no way from GID %d (%v) to %v: check routes and neighbours, or choose another GID", p.gid.index, p.gid, p.peer)
		}
	}
	return ""
}
