package launch

import (
	"fmt"
	"net"
	"strconv"
)

// torchEnv is what torchrun would set for a rank.
func torchEnv(rank, size int, s seat, m *meeting) []string {
	return []string{"RANK=" + strconv.Itoa(rank), "WORLD_SIZE=" + strconv.Itoa(size),
		"LOCAL_RANK=" + strconv.Itoa(s.local), "LOCAL_WORLD_SIZE=" + strconv.Itoa(s.locals),
		"MASTER_ADDR=" + m.master, "MASTER_PORT=" + m.port}
}

// freePort is a TCP port that nobody listens on now.
func freePort() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("launch: port for MASTER_PORT: %w", err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	return port, err
}
