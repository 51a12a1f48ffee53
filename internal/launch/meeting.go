package launch

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
)

// meeting is what tells the ranks of a job where they meet.
type meeting struct {
	env  []string
	file *os.File // rank 0's listening socket, if all ranks are here
	// master and port are MASTER_ADDR and MASTER_PORT.
	master, port string
}

func (m *meeting) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

// meeting binds rank 0's socket, or, if ranks are on other hosts, says where it will be and gives the
// job a name and a secret.
func (j *Job) meeting(seats []seat) (*meeting, error) {
	for _, s := range seats {
		if s.remote {
			return j.farMeeting(seats)
		}
	}
	m := &meeting{master: "127.0.0.1"}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("launch: listening socket for rank 0: %w", err)
	}
	m.env = []string{"GCCL_ROOT=" + ln.Addr().String()}
	m.file, err = ln.(*net.TCPListener).File()
	ln.Close()
	if err != nil {
		return nil, fmt.Errorf("launch: listening socket for rank 0: %w", err)
	}
	if j.Torch {
		if m.port, err = freePort(); err != nil {
			m.close()
			return nil, err
		}
	}
	return m, nil
}

func (j *Job) farMeeting(seats []seat) (*meeting, error) {
	m := &meeting{master: seats[0].host, port: "29500"}
	root := j.Root
	if root == "" {
		root = seats[0].host
		if !seats[0].remote && loopbackName(root) {
			// Which of this host's addresses leads here from the others they find out: they try all.
			addrs, err := ownAddrs()
			if err != nil {
				return nil, fmt.Errorf("launch: addresses of this host: %w", err)
			}
			if len(addrs) == 0 {
				return nil, fmt.Errorf("launch: this host has no address that another could reach: say where rank 0 listens")
			}
			root, m.master = strings.Join(addrs, ","), addrs[0]
		}
	}
	m.env = append(m.env, "GCCL_ROOT="+root)
	for _, v := range []string{"GCCL_RUN_ID", "GCCL_SECRET"} {
		if !j.given(v) {
			m.env = append(m.env, v+"="+rand.Text())
		}
	}
	return m, nil
}

// given says whether a variable reaches the ranks anyway.
func (j *Job) given(name string) bool {
	for _, e := range j.Env {
		if n, v, _ := strings.Cut(e, "="); n == name && v != "" {
			return true
		}
	}
	return os.Getenv(name) != ""
}

// ownAddrs are this host's addresses that may lead here from others.
func ownAddrs() ([]string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out, nil
}
