package verbs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gccl/gccl/rdma/verbs/internal/ibv"
)

// Open opens the first active port that o.HCA admits. The error wraps rdma.ErrUnavailable and says what is
// missing: the library, a device, an active port, a usable GID, or locked memory.
func Open(o Options) (*Device, error) {
	ds, err := open(o, 1)
	if err != nil {
		return nil, err
	}
	return ds[0], nil
}

// open opens active ports that o.HCA admits, sorted by name, at least one and at most so many. Ports that do not work
// are left out, with a warning in the log.
func open(o Options, most int) ([]*Device, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	filter, err := parseHCA(o.HCA)
	if err != nil {
		return nil, err
	}
	lib, err := ibv.Load()
	switch {
	case errors.Is(err, ibv.ErrBuild):
		return nil, unavailable("%w", err)
	case err != nil:
		return nil, unavailable("no libibverbs (Debian: apt install libibverbs1 ibverbs-providers): %w", err)
	}
	names, err := lib.Names()
	if err != nil {
		return nil, unavailable("the kernel has no RDMA support: %w", err)
	}
	if len(names) == 0 {
		return nil, unavailable("no RDMA device%s", seenByKernel(os.DirFS("/sys/class/infiniband")))
	}
	slices.Sort(names)
	var devices []*Device
	var refused []error
	admitted := false
	for _, name := range names {
		ports, err := portCount(lib, name)
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", name, err))
			continue
		}
		for port := 1; port <= ports && len(devices) < most; port++ {
			if !filter.match(name, port) {
				continue
			}
			admitted = true
			d, err := openPort(lib, name, uint8(port), o)
			if err != nil {
				refused = append(refused, fmt.Errorf("%s:%d: %w", name, port, err))
				continue
			}
			devices = append(devices, d)
		}
	}
	switch {
	case len(devices) > 0:
		for _, err := range refused {
			o.Logger.Sugar().Warnf("verbs: port not used: %v", err)
		}
		return devices, nil
	case !admitted && len(refused) == 0:
		return nil, unavailable("HCA filter %q admits none of the devices %v", o.HCA, names)
	}
	return nil, unavailable("no usable port: %w", errors.Join(refused...))
}

// KernelHasDevices reports whether the kernel shows any RDMA device, which costs less than asking libibverbs:
// it loads several libraries for that. Without, Open cannot succeed. Where sysfs is not to be seen, as in some containers,
// there may be devices: libibverbs also asks by netlink.
func KernelHasDevices() bool { return hasDevices("/sys/class") }

func hasDevices(classes string) bool {
	d, err := os.Open(filepath.Join(classes, "infiniband_verbs"))
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(classes)
		return err != nil
	}
	if err != nil {
		return true
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	return len(names) > 0 || err != io.EOF
}

// seenByKernel tells the case of a device without its user-space driver apart.
func seenByKernel(sys fs.FS) string {
	entries, err := fs.ReadDir(sys, ".")
	if err != nil || len(entries) == 0 {
		return ""
	}
	return fmt.Sprintf(": the kernel has %s, but libibverbs has no driver for it (Debian: apt install ibverbs-providers), or /dev/infiniband is not there",
		entries[0].Name())
}

func portCount(lib *ibv.Lib, name string) (int, error) {
	c, err := lib.Open(name)
	if err != nil {
		return 0, explain(err, 0)
	}
	defer c.Close()
	a, err := c.Attr()
	return int(a.PhysPortCount), err
}
