package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
)

// maxCandidates bounds how many addresses an endpoint advertises.
const maxCandidates = 32

// addressMagic begins an endpoint address; its last byte is the version.
const addressMagic = "gcclTCA\x01"

// name identifies an endpoint; it is random and no secret. Names are ordered: the end with the lower
// one leads. The first half is the same for all endpoints of a device, so that the devices
// are ordered too: chains of ends that wait for each other's Connect cannot close to a circle.
type name [16]byte

func (n name) String() string { return fmt.Sprintf("%x", n[8:]) }

// compare is -1, 0 or 1.
func (n name) compare(m name) int { return bytes.Compare(n[:], m[:]) }

// token is an endpoint's secret: who knows it has its address.
type token [16]byte

// hostID tells hosts apart: equal, and not zero, for processes that share their loopback.
type hostID [8]byte

// address is what an endpoint tells its peer's.
type address struct {
	name     name
	token    token
	host     hostID
	sockets  uint8
	loopback []netip.AddrPort // for processes of the same host
	routable []netip.AddrPort
}

// encode returns the bytes that docs/wire-tcp.md specifies.
func (a *address) encode() []byte {
	b := []byte(addressMagic)
	b = append(b, a.name[:]...)
	b = append(b, a.token[:]...)
	b = append(b, a.host[:]...)
	b = append(b, a.sockets, byte(len(a.loopback)+len(a.routable)))
	for _, c := range a.routable {
		b = appendCandidate(b, 0, c)
	}
	for _, c := range a.loopback {
		b = appendCandidate(b, candidateLoopback, c)
	}
	return b
}

// candidateLoopback marks a candidate that only processes of the same host may dial.
const candidateLoopback = 1

// candidateLen is the length of an encoded candidate: flags, family, port, address.
const candidateLen = 1 + 1 + 2 + 16

func appendCandidate(b []byte, flags byte, c netip.AddrPort) []byte {
	family := byte(6)
	if c.Addr().Is4() {
		family = 4
	}
	b = append(b, flags, family)
	b = binary.LittleEndian.AppendUint16(b, c.Port())
	ip := c.Addr().As16() // IPv4 in its mapped form
	return append(b, ip[:]...)
}

// parseAddress reads what a peer's encode wrote. It trusts nothing.
func parseAddress(b []byte) (*address, error) {
	const fixed = len(addressMagic) + 16 + 16 + 8 + 2
	if len(b) < fixed || !bytes.HasPrefix(b, []byte(addressMagic[:7])) {
		return nil, fmt.Errorf("tcp: %d bytes that are not an endpoint address of this provider", len(b))
	}
	if b[7] != addressMagic[7] {
		return nil, fmt.Errorf("tcp: endpoint address of version %d, this is version %d", b[7], addressMagic[7])
	}
	a := &address{}
	rest := b[len(addressMagic):]
	rest = rest[copy(a.name[:], rest):]
	rest = rest[copy(a.token[:], rest):]
	rest = rest[copy(a.host[:], rest):]
	a.sockets = rest[0]
	count := int(rest[1])
	rest = rest[2:]
	if a.sockets < 1 || a.sockets > maxSockets || count > maxCandidates || len(rest) != count*candidateLen {
		return nil, fmt.Errorf("tcp: malformed endpoint address: %d sockets, %d candidates, %d bytes", a.sockets, count, len(b))
	}
	for ; len(rest) > 0; rest = rest[candidateLen:] {
		ip := netip.AddrFrom16([16]byte(rest[4:candidateLen]))
		if rest[1] == 4 {
			ip = ip.Unmap()
		}
		c := netip.AddrPortFrom(ip, binary.LittleEndian.Uint16(rest[2:]))
		switch {
		case rest[0]&^candidateLoopback != 0, rest[1] != 4 && rest[1] != 6, ip.Is4() != (rest[1] == 4), c.Port() == 0:
			return nil, fmt.Errorf("tcp: malformed endpoint address: candidate % x", rest[:candidateLen])
		case rest[0] == candidateLoopback:
			a.loopback = append(a.loopback, c)
		default:
			a.routable = append(a.routable, c)
		}
	}
	return a, nil
}
