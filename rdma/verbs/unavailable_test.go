package verbs_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gccl/gccl/rdma"
	"github.com/gccl/gccl/rdma/verbs"
)

// tryVariable has the test binary open a port, with its value as options, and print the error.
const tryVariable = "GCCL_VERBS_TRY"

func tryOpen() string {
	var o verbs.Options
	if err := json.Unmarshal([]byte(os.Getenv(tryVariable)), &o); err != nil {
		return err.Error()
	}
	d, err := verbs.Open(o)
	if err == nil {
		_, err = d.Alloc(4<<20, "memlock")
	}
	switch {
	case err == nil:
		return "works"
	case errors.Is(err, rdma.ErrUnavailable):
		return "unavailable: " + err.Error()
	}
	return err.Error()
}

// Every reason for which verbs may not work is told by name. A fresh process tries each time: a
// loaded library stays loaded.
func TestUnavailable(t *testing.T) {
	ports(t)
	inLab(t)
	bad := 200
	for _, tt := range []struct {
		name, before, after string
		options             verbs.Options
		nobody              bool
		want                []string
	}{
		{name: "nothing is wrong", want: []string{"works"}},
		{
			name:   "no library",
			before: "mv /usr/lib/*/libibverbs.so.1 /lib.away", after: "mv /lib.away /usr/lib/x86_64-linux-gnu/libibverbs.so.1",
			want: []string{"unavailable: ", "no libibverbs (Debian: apt install libibverbs1", "cannot open shared object"},
		}, {
			name:   "no driver",
			before: "mv /etc/libibverbs.d /etc/away", after: "mv /etc/away /etc/libibverbs.d",
			want: []string{"unavailable: ", "no RDMA device", "the kernel has rxe", "no driver for it"},
		}, {
			name:   "no device files",
			before: "mv /dev/infiniband /dev/away", after: "mv /dev/away /dev/infiniband",
			want: []string{"unavailable: ", "/dev/infiniband is not there"},
		}, {
			name: "filter", options: verbs.Options{HCA: "mlx5"},
			want: []string{"unavailable: ", `HCA filter "mlx5" admits none of the devices [rxe0 rxe1]`},
		}, {
			name:   "port down",
			before: "ip link set v0 down; ip link set v1 down", after: "linkup",
			want: []string{"unavailable: ", "rxe0:1: port is down, not active", "rxe1:1: port is down"},
		}, {
			name: "GID index", options: verbs.Options{GIDIndex: &bad},
			want: []string{"unavailable: ", "rxe0:1: GID table has no entry 200 (it has 0: fe80::"},
		}, {
			name: "no address of the family", options: verbs.Options{RoCEVersion: 1},
			want: []string{"unavailable: ", "no GID for RoCE v1, address family any"},
		}, {
			name:   "memlock",
			before: "chmod -R a+rwX /dev/infiniband; chmod a+rx /t/*", nobody: true,
			want: []string{"unavailable: ", "memlock limit is 64 KiB, this needs 4096 KiB more: raise it with ulimit -l"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.before != "" {
				sh(t, tt.before)
			}
			if tt.after != "" {
				defer sh(t, tt.after)
			}
			o, err := json.Marshal(tt.options)
			require.NoError(t, err)
			cmd := exec.Command("sh", "-c", `ulimit -l 64; exec "$0"`, os.Args[0])
			cmd.Env = append(os.Environ(), tryVariable+"="+string(o))
			if tt.nobody { // root needs no limit
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			t.Logf("ERROR | %s | %s", tt.name, strings.TrimSpace(string(out)))
			for _, want := range tt.want {
				assert.Contains(t, string(out), want)
			}
		})
	}
}
