package launch

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/gccl/gccl/bootstrap"
)

// RootFD is the variable that tells rank 0 which inherited descriptor is its listening socket. The
// launcher binds it beforehand, so that nobody can take the port between choice and use.
const RootFD = "GCCL_ROOT_FD"

// Inherit gives rank 0 the listening socket that its launcher bound for it, if there is one.
func Inherit(cfg *bootstrap.Config) error {
	s := os.Getenv(RootFD)
	if s == "" || cfg.Rank != 0 {
		return nil
	}
	fd, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%s=%q: %w", RootFD, s, err)
	}
	f := os.NewFile(uintptr(fd), "root socket")
	if cfg.Listener, err = net.FileListener(f); err != nil {
		return fmt.Errorf("%s=%d: %w", RootFD, fd, err)
	}
	if err := os.Unsetenv(RootFD); err != nil { // it is taken
		return err
	}
	return f.Close()
}
