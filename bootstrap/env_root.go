package bootstrap

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/gccl/gccl/bootstrap/internal/meet"
)

// run records the name of the run, which is the same on all ranks.
func (e *environment) run(from, id string) {
	e.cfg.RunID, e.identity = id, id
	e.source.From["RunID"] = from
}

// epoch reads a launcher's count of restarts.
func (e *environment) epoch(name string) error {
	text, ok := e.get(name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%s=%q is no number", name, text)
	}
	e.cfg.Epoch, e.source.From["Epoch"] = n, name
	return nil
}

// root records hosts of which one is rank 0's. Their ports are derived from the job's identity.
func (e *environment) root(from string, hosts ...string) {
	e.cfg.Root = ""
	for i, h := range hosts {
		if i > 0 {
			e.cfg.Root += ","
		}
		e.cfg.Root += strings.Trim(h, "[]")
	}
	e.source.From["Root"] = from
}

// findRoot settles how rank 0 is found: GCCL_ROOT, then a store, then the process manager, then what
// the launcher's variables allow to conclude.
func (e *environment) findRoot() error {
	c := &e.cfg
	if text, name := e.first("GCCL_ROOT", "NCCL_COMM_ID"); text != "" {
		hosts := strings.Split(text, ",")
		for i, h := range hosts {
			if hosts[i] = strings.TrimSpace(h); !hasPort(hosts[i]) {
				hosts[i] = e.addPorts(strings.Trim(hosts[i], "[]"))
			}
		}
		c.Root, c.RootIsGuess, c.PMIFD = strings.Join(hosts, ","), false, 0
		e.source.From["Root"] = name
		if _, err := meet.ParseTargets(c.Root); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	switch {
	case c.Size == 1, c.Rendezvous != "", c.PMIFD != 0:
		c.Root, c.RootIsGuess = "", false
		delete(e.source.From, "Root")
		if c.Rendezvous != "" {
			c.PMIFD = 0
		}
		return nil
	case c.Root == "" && c.LocalSize == c.Size:
		c.Root = "127.0.0.1"
		e.source.From["Root"] = "this host, as all ranks are on it"
		if e.identity == "" && c.RunID == "" && c.ListenPorts == "" {
			return fmt.Errorf("nothing tells this job from others on this host: set GCCL_ROOT=127.0.0.1:port")
		}
	case c.Root == "":
		hint := ""
		if e.hint != "" {
			hint = " (" + e.hint + ")"
		}
		return fmt.Errorf("nothing says where rank 0 is%s: set GCCL_ROOT=host:port, the same on all ranks, "+
			"or GCCL_RENDEZVOUS=file:///shared/directory", hint)
	}
	hosts := strings.Split(c.Root, ",")
	for i, h := range hosts {
		hosts[i] = e.addPorts(h)
	}
	c.Root = strings.Join(hosts, ",")
	if _, err := meet.ParseTargets(c.Root); err != nil {
		return fmt.Errorf("%s: %w", e.source.From["Root"], err)
	}
	return nil
}

// addPorts completes a host with GCCL_PORT_RANGE, or with the ports of the job.
func (e *environment) addPorts(host string) string {
	ports := e.cfg.ListenPorts
	if ports == "" {
		identity := e.identity
		if identity == "" || e.source.From["RunID"] == "GCCL_RUN_ID" {
			identity = e.cfg.RunID
		}
		ports = derivePorts(identity)
	}
	return net.JoinHostPort(host, ports)
}

func hasPort(addr string) bool {
	_, _, err := net.SplitHostPort(addr)
	return err == nil
}

// hostsOfURI returns the addresses in Open MPI's name for its own mpirun, for instance
// "2894004224.0;tcp://192.0.2.2,172.17.0.1:45943;tcp6://[2001:db8::2]:45943".
func hostsOfURI(uri string) ([]string, error) {
	var hosts []string
	for _, part := range strings.Split(uri, ";") {
		kind, rest, ok := strings.Cut(part, "://")
		if !ok || kind != "tcp" && kind != "tcp6" {
			continue
		}
		if at := strings.LastIndexByte(rest, ':'); at >= 0 {
			rest = rest[:at]
		}
		for _, h := range strings.Split(strings.Trim(rest, "[]"), ",") {
			if h = strings.Trim(h, "[] "); h != "" {
				hosts = append(hosts, h)
			}
		}
	}
	if len(hosts) == 0 {
		return nil, fmt.Errorf("no address in %q", uri)
	}
	return hosts, nil
}
