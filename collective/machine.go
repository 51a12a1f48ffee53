package collective

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"github.com/gccl/gccl/collective/tuner"
)

// ThisMachine describes the machine as tuning files name it. Its cores are all it has online, whichever of them
// this process is bound to.
func ThisMachine() tuner.Machine {
	cpu, cores := processors()
	return tuner.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpu, Cores: cores}
}

// processors returns the processor's name and the number of cores as Linux gives them; elsewhere no name and
// the cores that this process may use.
func processors() (name string, cores int) {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", runtime.NumCPU()
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		key, value, _ := strings.Cut(sc.Text(), ":")
		switch strings.TrimSpace(key) {
		case "processor":
			cores++
		case "model name":
			name = strings.TrimSpace(value)
		}
	}
	if cores == 0 {
		cores = runtime.NumCPU()
	}
	return name, cores
}
