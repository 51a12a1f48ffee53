package hostmem

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// checkAvailable tells, before a page is touched, that n bytes would not fit: touching memory over
// the limit of a cgroup does not fail, it has the process killed. Between this look and the touch
// others may take memory, so it is a clear message in the common case and no promise.
func checkAvailable(n int) error {
	a := available(os.DirFS("/"))
	if uint64(n) <= a.bytes {
		return nil
	}
	return fmt.Errorf("%w: %s available in %s", ErrNoMemory, Size(a.bytes), a.where)
}

// room is how much memory is left, and what sets the bound.
type room struct {
	bytes uint64
	where string
}

// available reads the tightest bound: the machine's, or that of a memory cgroup above this process
// (version 2 or 1). What cannot be read does not bound.
func available(root fs.FS) room {
	tightest := room{bytes: 1<<64 - 1, where: "an unknown machine"}
	if n, ok := fieldOf(root, "proc/meminfo", "MemAvailable:"); ok {
		tightest = room{n << 10, "this machine"}
	}
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return tightest
	}
	for line := range strings.Lines(string(groups)) {
		// "0::/path" in version 2, "4:memory:/path" in version 1 (cgroups(7)).
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		v := version2
		if parts[1] != "" {
			if !strings.Contains(","+parts[1]+",", ",memory,") {
				continue
			}
			v = version1
		}
		// A container without its own cgroup namespace sees a path that is not mounted here; the
		// walk then ends at the root of the mount, which is the container's group.
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			if left, ok := v.left(root, dir); ok && left < tightest.bytes {
				tightest = room{left, "memory cgroup " + dir}
			}
			if dir == "/" {
				break
			}
		}
	}
	return tightest
}

// cgroupFiles names the files of one version of memory cgroups.
type cgroupFiles struct{ mount, limit, usage, reclaimable string }

var (
	version2 = cgroupFiles{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
	version1 = cgroupFiles{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
)

// left returns limit − usage + page cache that the kernel gives up first, or false if unlimited.
func (v cgroupFiles) left(root fs.FS, dir string) (uint64, bool) {
	at := path.Join(v.mount, dir)
	limit, ok := numberIn(root, path.Join(at, v.limit))
	if !ok || limit >= 1<<62 { // version 1 writes "unlimited" as 2⁶³ less a page
		return 0, false
	}
	usage, ok := numberIn(root, path.Join(at, v.usage))
	if !ok {
		return 0, false
	}
	cache, _ := fieldOf(root, path.Join(at, "memory.stat"), v.reclaimable)
	usage -= min(usage, cache)
	return limit - min(limit, usage), true
}

func numberIn(root fs.FS, name string) (uint64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	return n, err == nil
}

// fieldOf finds "key number …" in a file of such lines.
func fieldOf(root fs.FS, name, key string) (uint64, bool) {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && f[0] == key {
			n, err := strconv.ParseUint(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
