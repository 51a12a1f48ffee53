package collective

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/tensor"
)

// capture is a packet socket on the loopback interface, through which everything between two processes
// of a host goes, whatever address they use.
type capture int

func newCapture(t *testing.T) capture {
	lo, err := net.InterfaceByName("lo")
	require.NoError(t, err)
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
	if err == unix.EPERM {
		t.Skip("a packet socket needs CAP_NET_RAW")
	}
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20))
	require.NoError(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: lo.Index}))
	return capture(fd)
}

// payloads returns what was sent over TCP from or to a port of a range since the last call. The loopback
// interface has handed a packet over before its sender goes on.
func (c capture) payloads(t *testing.T, first, last uint16) (out [][]byte) {
	b := make([]byte, 1<<17)
	for {
		n, _, err := unix.Recvfrom(int(c), b, 0)
		if err == unix.EAGAIN {
			return out
		}
		require.NoError(t, err)
		if p, ok := segment(b[:n], first, last); ok && len(p) > 0 {
			out = append(out, bytes.Clone(p))
		}
	}
}

// segment returns the payload of an Ethernet frame with a TCP segment.
func segment(b []byte, first, last uint16) ([]byte, bool) {
	const ethernet = 14
	if len(b) < ethernet+20 {
		return nil, false
	}
	kind, ip := binary.BigEndian.Uint16(b[12:]), b[ethernet:]
	var tcp []byte
	switch {
	case kind == unix.ETH_P_IP && ip[9] == unix.IPPROTO_TCP:
		tcp = ip[int(ip[0]&15)*4:]
	case kind == unix.ETH_P_IPV6 && len(ip) > 40 && ip[6] == unix.IPPROTO_TCP:
		tcp = ip[40:]
	default:
		return nil, false
	}
	if len(tcp) < 20 {
		return nil, false
	}
	from, to := binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	if (from < first || from > last) && (to < first || to > last) {
		return nil, false
	}
	return tcp[min(len(tcp), int(tcp[12]>>4)*4):], true
}

// checksummed reports whether some frame of docs/wire-tcp.md says that its payload has a checksum, and
// whether there was a frame at all.
func checksummed(payloads [][]byte) (frame, checksum bool) {
	const header = 48
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, p := range payloads {
		for i := 0; i+header <= len(p); i++ {
			if p[i] == 1 && p[i+2] == 0 && p[i+3] == 0 && crc32.Checksum(p[i:i+44], table) == binary.LittleEndian.Uint32(p[i+44:]) {
				frame, checksum = true, checksum || p[i+1]&2 != 0
			}
		}
	}
	return frame, checksum
}

// The settings of the tcp provider reach it: what crosses is on the job's ports, readable only without
// GCCL_TCP_ENCRYPT, and has checksums only with GCCL_TCP_CHECKSUM.
func TestTCPSettings(t *testing.T) {
	const first, last = 29000, 29199
	word := []byte("weights that nobody else may read")
	for _, env := range []map[string]string{
		{},
		{"GCCL_TCP_CHECKSUM": "1", "GCCL_TCP_SOCKETS": "3"},
		{"GCCL_TCP_ENCRYPT": "1"},
		{"GCCL_TCP_ENCRYPT": "1", "GCCL_TCP_CHECKSUM": "1", "GCCL_TCP_SOCKETS": "2"},
	} {
		t.Run(fmt.Sprint(env), func(t *testing.T) {
			wire := newCapture(t)
			comms := newOverTCP(t, 2, env, fmt.Sprintf("%d-%d", first, last))
			each(t, comms, func(c *Comm) error {
				b := make([]byte, 600_000)
				if c.Rank() == 0 {
					copy(b, bytes.Repeat(word, len(b)/len(word)+1))
				}
				if err := c.Broadcast(t.Context(), tensor.Of(b), tensor.Of(b), 0); err != nil {
					return err
				}
				if !bytes.Equal(b, bytes.Repeat(word, len(b)/len(word)+1)[:len(b)]) {
					return fmt.Errorf("rank %d has other bytes", c.Rank())
				}
				return nil
			})
			payloads := wire.payloads(t, first, last)
			require.NotEmpty(t, payloads, "nothing crossed on the ports of the range")
			encrypted := env["GCCL_TCP_ENCRYPT"] == "1"
			readable := false
			for _, p := range payloads {
				readable = readable || bytes.Contains(p, word) || bytes.Contains(p, []byte("gcclTCP"))
			}
			require.Equal(t, !encrypted, readable, "readable")
			if !encrypted {
				frame, checksum := checksummed(payloads)
				require.True(t, frame, "no frame found")
				require.Equal(t, env["GCCL_TCP_CHECKSUM"] == "1", checksum, "checksum")
			}
		})
	}
}

// newOverTCP makes the ranks of a job, with settings in common, in this process.
func newOverTCP(t *testing.T, n int, env map[string]string, ports string) []*Comm {
	t.Helper()
	comms := make([]*Comm, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r, group := range bootstrap.Local(n) {
		cfg, _, err := readSettings(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		require.NoError(t, err)
		cfg.Group, cfg.Provider, cfg.Bootstrap.ListenPorts = group, "tcp", ports
		cfg.Bootstrap.Secret = "s"
		wg.Go(func() { comms[r], errs[r] = New(context.Background(), cfg) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		each(t, comms, func(c *Comm) error { return c.Close() })
	})
	return comms
}

// Too few ports are an error that names the setting.
func TestTCPPortsRunOut(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	cfg := Config{}
	cfg.Bootstrap.ListenPorts = fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
	_, err = openTCP(&cfg)
	require.ErrorContains(t, err, "GCCL_PORT_RANGE")
}
