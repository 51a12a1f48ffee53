package collective

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"github.com/gccl/gccl/collective/tuner"
)

// ThisMachine describes the machine as tuning files name it.
func ThisMachine() tuner.Machine {
	return tuner.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), Cores: runtime.NumCPU()}
}

// cpuModel is the processor's name as Linux gives it; "" elsewhere.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		name, value, _ := strings.Cut(sc.Text(), ":")
		if strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
