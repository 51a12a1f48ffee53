package collective_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// wire is the link of one host of a lab, with this process in the middle: both ends are TAP devices, and
// every Ethernet frame passes through here, where it can be lost, held up, or damaged. What comes out of a TAP
// device is what a card would send: of at most 1500 bytes, and with its checksums.
type wire struct {
	ends [2]*os.File // of the host, of the switch
	fate [2]atomic.Pointer[fate]
	wg   sync.WaitGroup
}

// The directions of a wire, by the end that frames come from.
const (
	fromHost = iota
	toHost
)

// fate decides what becomes of a frame: it returns what is passed on, the frame changed or in part or nothing, and after
// which time; those that came later may overtake it. One goroutine calls it for each direction.
type fate func(rng *rand.Rand, frame []byte) (out []byte, after time.Duration)

// wire puts this process between a host and the switch. Frames pass untouched at first.
func (l *lab) wire(host int) *wire {
	l.t.Helper()
	l.ip("-n", l.ns(host), "link", "del", "eth0") // and its other end
	w := new(wire)
	l.t.Cleanup(func() {
		for _, f := range w.ends {
			if f != nil {
				_ = f.Close()
			}
		}
		w.wg.Wait()
	})
	w.ends[fromHost] = tap(l.t, l.ns(host), "eth0")
	w.ends[toHost] = tap(l.t, labSwitch, l.port(host))
	l.join(host)
	for d := range w.ends {
		w.set(nil)
		w.wg.Go(func() { w.pump(d, rand.New(rand.NewPCG(uint64(host), uint64(d)))) })
	}
	return w
}

// set has a fate for the frames of some directions, of both if none is named; nil passes them.
func (w *wire) set(f fate, directions ...int) {
	if len(directions) == 0 {
		directions = []int{fromHost, toHost}
	}
	if f == nil {
		f = func(_ *rand.Rand, frame []byte) ([]byte, time.Duration) { return frame, 0 }
	}
	for _, d := range directions {
		w.fate[d].Store(&f)
	}
}

func (w *wire) pump(direction int, rng *rand.Rand) {
	in, out := w.ends[direction], w.ends[1-direction]
	frame := make([]byte, 2048)
	for {
		n, err := in.Read(frame)
		if err != nil {
			return // closed
		}
		passed, after := (*w.fate[direction].Load())(rng, frame[:n])
		switch {
		case len(passed) == 0:
		case after > 0:
			passed = slices.Clone(passed)
			time.AfterFunc(after, func() { _, _ = out.Write(passed) })
		default:
			_, _ = out.Write(passed) // lost if the interface is down
		}
	}
}

// tap makes a TAP device in a namespace; it lasts as long as the file is open.
func tap(t *testing.T, ns, name string) *os.File {
	t.Helper()
	var file *os.File
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for ever: the thread ends with this goroutine, and its namespace with it
		done <- func() error {
			netns, err := unix.Open("/run/netns/"+ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(netns)
			if err = unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
				return err
			}
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
			if err != nil {
				return err
			}
			ifr, err := unix.NewIfreq(name)
			if err == nil {
				ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
				err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
			}
			if err != nil {
				_ = unix.Close(fd)
				return err
			}
			file = os.NewFile(uintptr(fd), name)
			return nil
		}()
	}()
	err := <-done
	if os.IsNotExist(err) {
		t.Skipf("this kernel has no TAP devices: %v", err)
	}
	require.NoError(t, err)
	return file
}

// segment returns the bytes of a frame that TCP carries over IPv4 (RFC 791, RFC 9293), none of any other frame.
func segment(frame []byte) []byte {
	const ethernet = 14
	if len(frame) < ethernet+20 || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[ethernet+9] != unix.IPPROTO_TCP {
		return nil
	}
	tcp := ethernet + int(frame[ethernet]&15)*4
	if len(frame) < tcp+20 {
		return nil
	}
	return frame[min(len(frame), tcp+int(frame[tcp+12]>>4)*4):]
}

// late delays frames by 2 to 4 ms, each by a time of its own.
func late(rng *rand.Rand, frame []byte) ([]byte, time.Duration) {
	return frame, 2*time.Millisecond + time.Duration(rng.IntN(2000))*time.Microsecond
}

// exchange swaps two words in the middle of a long segment, which no checksum of IP, TCP or Ethernet sees: they
// add words up. It reports whether the segment had two that differ.
func exchange(data []byte) bool {
	if len(data) < 1000 {
		return false
	}
	for i := len(data) / 4 * 2; i+4 <= len(data); i += 2 {
		a, b := [2]byte(data[i:]), [2]byte(data[i+2:])
		if a != b {
			copy(data[i:], b[:])
			copy(data[i+2:], a[:])
			return true
		}
	}
	return false
}
