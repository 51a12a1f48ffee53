//go:build !linux

package launch

import (
	"os"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return nil }

func terminate(p *os.Process) { _ = p.Signal(os.Interrupt) }

func kill(p *os.Process) { _ = p.Kill() }

func exitCode(s *os.ProcessState) int { return s.ExitCode() }
