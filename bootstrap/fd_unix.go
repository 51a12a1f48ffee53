//go:build unix

package bootstrap

import (
	"fmt"
	"os"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// openFD takes over a descriptor that this process inherited, such that deadlines work on it.
func openFD(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "PMI_FD"), nil
}

// spareFDs is for what else the process opens while it connects.
const spareFDs = 32

// ReserveFiles makes sure that this process may open n more file descriptors, and some beside them, as Connect does for its own: it raises the soft limit
// if need be, and says how many are needed if the hard limit is in the way (ErrConfig).
func ReserveFiles(n int, log *zap.Logger) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil // not known: opening will tell
	}
	if n+spareFDs <= int(min(limit.Cur, 1<<20))/4 {
		return nil // not worth counting what is open
	}
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return nil
	}
	need := uint64(len(entries) + n + spareFDs)
	if need <= uint64(limit.Cur) {
		return nil
	}
	if need > uint64(limit.Max) {
		return fmt.Errorf("%w: this rank needs %d file descriptors (%d are open) and may have %d: raise the limit with ulimit -n",
			ErrConfig, need, len(entries), limit.Max)
	}
	old := limit.Cur
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("%w: this rank needs %d file descriptors and may have %d: %w", ErrConfig, need, old, err)
	}
	log.Info("raised the limit of open files", zap.Uint64("from", uint64(old)), zap.Uint64("to", uint64(limit.Max)))
	return nil
}
