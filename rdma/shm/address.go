package shm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/gccl/gccl/rdma"
)

// An address is these 80 bytes, integers little-endian:
//
//	 0  4  "gshm"
//	 4  1  version, 1
//	 5  3  zero
//	 8  4  process id, in the owner's pid namespace
//	12  4  endpoint id
//	16  8  inode of the owner's network namespace; 0 if unknown
//	24  8  inode of the owner's pid namespace; 0 if unknown
//	32 16  boot id of the owner's kernel; zero if unknown
//	48 16  name of the owner's socket
//	64 16  token of the endpoint, a secret
const (
	addressSize    = 80
	addressVersion = 1
)

var addressMagic = [4]byte{'g', 's', 'h', 'm'}

type address struct {
	pid      uint32
	endpoint uint32
	host     host
	name     name
	token    token
}

// host is where abstract sockets reach: one network namespace of one running kernel.
type host struct {
	netns uint64
	pidns uint64 // in which process ids mean something
	boot  [16]byte
}

// name is the random name of a device's socket.
type name [16]byte

// token is the secret that proves that a process was given an endpoint's address.
type token [16]byte

// path is the socket's name as package net writes abstract names. It shows in /proc/net/unix.
func (n name) path() string { return "@gccl-" + hex.EncodeToString(n[:]) }

func (a address) encode() []byte {
	b := make([]byte, 0, addressSize)
	b = append(b, addressMagic[:]...)
	b = append(b, addressVersion, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, a.pid)
	b = binary.LittleEndian.AppendUint32(b, a.endpoint)
	b = binary.LittleEndian.AppendUint64(b, a.host.netns)
	b = binary.LittleEndian.AppendUint64(b, a.host.pidns)
	b = append(b, a.host.boot[:]...)
	b = append(b, a.name[:]...)
	return append(b, a.token[:]...)
}

func decodeAddress(b []byte) (address, error) {
	var a address
	if len(b) < 5 || [4]byte(b[:4]) != addressMagic {
		return a, errors.New("shm: not an address of an shm endpoint")
	}
	if b[4] != addressVersion {
		return a, fmt.Errorf("shm: address of version %d, this is version %d", b[4], addressVersion)
	}
	if len(b) != addressSize || b[5]|b[6]|b[7] != 0 {
		return a, fmt.Errorf("shm: malformed address of %d bytes", len(b))
	}
	a.pid = binary.LittleEndian.Uint32(b[8:])
	a.endpoint = binary.LittleEndian.Uint32(b[12:])
	a.host.netns = binary.LittleEndian.Uint64(b[16:])
	a.host.pidns = binary.LittleEndian.Uint64(b[24:])
	a.host.boot = [16]byte(b[32:48])
	a.name = name(b[48:64])
	a.token = token(b[64:80])
	return a, nil
}

// reaches tells why sockets of h cannot reach other, or nil if they may.
func (h host) reaches(other host) error {
	switch {
	case h.boot != other.boot && h.boot != [16]byte{} && other.boot != [16]byte{}:
		return fmt.Errorf("shm: the peer runs on another host: %w", rdma.ErrUnavailable)
	case h.netns != other.netns && h.netns != 0 && other.netns != 0:
		return fmt.Errorf("shm: the peer runs on this host in another network namespace (%d, here %d), "+
			"which abstract sockets do not cross; give the containers one network: %w",
			other.netns, h.netns, rdma.ErrUnavailable)
	}
	return nil
}
