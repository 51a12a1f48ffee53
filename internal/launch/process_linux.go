package launch

import (
	"os"
	"syscall"
)

// attributes puts a rank into its own process group, so that Ctrl-C reaches it through the
// launcher alone, and ends it when the launcher ends, however that happens.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func terminate(p *os.Process) { _ = p.Signal(syscall.SIGTERM) }

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
