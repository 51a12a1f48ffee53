//go:build linux

package shm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// conn is a connection to a peer's process. One goroutine receives; any may send.
type conn struct {
	unix *net.UnixConn
	pid  int // of the peer, as seen from this process; 0 if its pid namespace is not visible
}

// sendPatience bounds an answer to a peer that does not read; its connection breaks then.
const sendPatience = 5 * time.Second

var errOtherUser = errors.New("the other process runs as another user")

// newConn takes over c if the process behind it has the same user id.
func newConn(c *net.UnixConn) (*conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	ctl := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(ctl, err); err != nil {
		return nil, fmt.Errorf("SO_PEERCRED: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%w: pid %d is user %d, this is user %d", errOtherUser, cred.Pid, cred.Uid, os.Geteuid())
	}
	return &conn{unix: c, pid: int(cred.Pid)}, nil
}

func (c *conn) close() { _ = c.unix.Close() }

// send writes one message with descriptors, which stay the caller's.
func (c *conn) send(m *message, fds ...int) error {
	var b [messageSize]byte
	m.encode(&b)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	_, _, err := c.unix.WriteMsgUnix(b[:], rights, nil)
	return err
}

// receive reads one message and at most maxFDs descriptors, which become the caller's. io.EOF means
// that the other side has closed.
func (c *conn) receive(maxFDs int) (message, []int, error) {
	var b [messageSize + 1]byte // one more, to notice longer packets
	var rights []byte
	if maxFDs > 0 {
		rights = make([]byte, unix.CmsgSpace(4*maxFDs))
	}
	n, rn, flags, _, err := c.unix.ReadMsgUnix(b[:], rights)
	if err != nil {
		return message{}, nil, err
	}
	if n == 0 {
		return message{}, nil, io.EOF
	}
	fds, err := descriptors(rights[:rn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("descriptors got lost on the way: too many open files, or more sent than due")
	}
	if err == nil {
		var m message
		if m, err = decodeMessage(b[:n]); err == nil {
			return m, fds, nil
		}
	}
	closeAll(fds)
	return message{}, nil, err
}

func descriptors(rights []byte) ([]int, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	parts, err := unix.ParseSocketControlMessage(rights)
	var all []int
	for i := range parts {
		if fds, err := unix.ParseUnixRights(&parts[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all, err
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// hangUp says why the connection ends, if that takes no time, and closes it.
func (c *conn) hangUp(code uint8) {
	if c == nil {
		return
	}
	_ = c.unix.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	_ = c.send(&message{kind: bye, code: code})
	c.close()
}
