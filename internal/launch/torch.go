package launch

import (
	"fmt"
	"net"
	"strconv"
)

// torchEnv is what torchrun would set for a rank of a job on this host.
func torchEnv(rank, size int, port string) []string {
	r, n := strconv.Itoa(rank), strconv.Itoa(size)
	return []string{"RANK=" + r, "WORLD_SIZE=" + n, "LOCAL_RANK=" + r, "LOCAL_WORLD_SIZE=" + n,
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port}
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
