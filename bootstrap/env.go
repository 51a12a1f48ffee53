package bootstrap

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/meet"
)

// Source says which launcher FromEnv found and which variable each value came from.
type Source struct {
	// Launcher is "gccl", "torchrun", "openmpi", "pmi", "slurm", "horovod", "lws", "kubernetes" or
	// "none".
	Launcher string

	// From maps a field of Config ("Rank", "Root", …) to where its value came from
	// ("RANK", "PMI_FD", "SLURM_STEP_NODELIST").
	From map[string]string
}

// String says it all in one line, for a log.
func (s Source) String() string {
	var b strings.Builder
	b.WriteString(s.Launcher)
	for i, field := range slices.Sorted(maps.Keys(s.From)) {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s from %s", sep, field, s.From[field])
	}
	return b.String()
}

// FromEnv finds out from environment variables who this process is and how it finds the others.
// lookup is os.LookupEnv, or the C library's getenv where the process's environment may have been
// changed by a host language after it started. Variables that are set and empty count as not set.
//
// The first launcher in this order that left its variables wins, because launchers run inside each
// other and the outer one's ranks are not this process's: GCCL_RANK, torchrun's RANK, Open MPI, PMI,
// a Slurm step, Horovod, LeaderWorkerSet, a Kubernetes indexed job. A launcher's variables that are
// there in part are an error that names the missing one. Without any the process is alone: Size is 1.
//
// GCCL_ROOT, GCCL_RENDEZVOUS, GCCL_SECRET, GCCL_RUN_ID and the like override what the launcher says.
// docs/launchers.md describes every variable.
func FromEnv(lookup func(string) (string, bool)) (Config, Source, error) {
	e := &environment{lookup: lookup, source: Source{Launcher: "none", From: make(map[string]string)}}
	e.cfg = Config{Size: 1, LocalSize: 1}
	if err := e.read(); err != nil {
		return Config{}, e.source, fmt.Errorf("bootstrap: %w: %w", ErrConfig, err)
	}
	return e.cfg, e.source, nil
}

// environment gathers a Config out of variables.
type environment struct {
	lookup func(string) (string, bool)
	cfg    Config
	source Source

	// node and nodes, if known, place this process's host among the job's.
	node, nodes int

	// identity names the job for derived ports, the same on all ranks.
	identity string

	// hint says what the launcher could have told about the root.
	hint string
}

func (e *environment) read() error {
	found := false
	for _, l := range launchers {
		var err error
		if found, err = l.read(e); err != nil {
			return fmt.Errorf("launcher %s: %w", l.name, err)
		}
		if found {
			e.source.Launcher = l.name
			break
		}
	}
	if !found {
		if err := e.refuseStrayVariables(); err != nil {
			return err
		}
	}
	if e.cfg.Rank < 0 || e.cfg.Size < 1 || e.cfg.Rank >= e.cfg.Size {
		return fmt.Errorf("%s=%d and %s=%d: the rank must be from 0 to size-1",
			e.source.From["Rank"], e.cfg.Rank, e.source.From["Size"], e.cfg.Size)
	}
	if err := e.readOverrides(); err != nil {
		return err
	}
	return e.findRoot()
}

// refuseStrayVariables finds variables that say that this process is not alone after all.
func (e *environment) refuseStrayVariables() error {
	if _, ok := e.get("GCCL_SIZE"); ok {
		return fmt.Errorf("GCCL_SIZE is set and GCCL_RANK is missing")
	}
	job, inJob := e.get("SLURM_JOB_ID")
	tasks, _ := e.get("SLURM_NTASKS")
	if n, err := strconv.Atoi(tasks); inJob && err == nil && n > 1 {
		return fmt.Errorf("this process runs in Slurm job %s with %d tasks, but in no step, so that there is one of it only: "+
			"start it with srun", job, n)
	}
	return nil
}

// readOverrides reads the variables that go before any launcher's.
func (e *environment) readOverrides() error {
	c := &e.cfg
	for _, v := range []struct {
		field string
		to    *string
		names []string
	}{
		{"Secret", &c.Secret, []string{"GCCL_SECRET"}},
		{"RunID", &c.RunID, []string{"GCCL_RUN_ID"}},
		{"Interface", &c.Interface, []string{"GCCL_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}},
		{"ListenPorts", &c.ListenPorts, []string{"GCCL_PORT_RANGE"}},
		{"Rendezvous", &c.Rendezvous, []string{"GCCL_RENDEZVOUS"}},
	} {
		for _, name := range v.names {
			if value, ok := e.get(name); ok {
				*v.to, e.source.From[v.field] = value, name
				break
			}
		}
	}
	for _, v := range []struct {
		field, name string
		to          *int
	}{
		{"LocalRank", "GCCL_LOCAL_RANK", &c.LocalRank},
		{"LocalSize", "GCCL_LOCAL_SIZE", &c.LocalSize},
	} {
		if err := e.number(v.field, v.to, v.name); err != nil {
			return err
		}
	}
	if c.ListenPorts != "" {
		if _, _, err := meet.ParsePorts(c.ListenPorts); err != nil {
			return fmt.Errorf("GCCL_PORT_RANGE: %w", err)
		}
	}
	if text, ok := e.get("GCCL_EPOCH"); ok {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fmt.Errorf("GCCL_EPOCH=%q is no number", text)
		}
		c.Epoch, e.source.From["Epoch"] = n, "GCCL_EPOCH"
	}
	if text, ok := e.get("GCCL_TIMEOUT"); ok {
		d, err := parseTimeout(text)
		if err != nil {
			return fmt.Errorf("GCCL_TIMEOUT: %w", err)
		}
		if d > 0 {
			c.Timeout, e.source.From["Timeout"] = d, "GCCL_TIMEOUT"
		}
	}
	if text, ok := e.get("GCCL_ALLOW_LOOPBACK"); ok {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("GCCL_ALLOW_LOOPBACK=%q: want 0 or 1", text)
		}
		c.AllowLoopback, e.source.From["AllowLoopback"] = b, "GCCL_ALLOW_LOOPBACK"
	}
	return nil
}

// parseTimeout reads a duration like "90s" or "10m"; a bare number means seconds. 0 and off, by which the
// variable frees calls of a deadline, give 0.
func parseTimeout(text string) (time.Duration, error) {
	if text == "0" || text == "off" {
		return 0, nil
	}
	number := text
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		number += "s"
	}
	d, err := time.ParseDuration(number)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q: want a duration like 90s or 10m, a number of seconds, or off", text)
	}
	return d, nil
}

// get returns a variable that is set and not empty.
func (e *environment) get(name string) (string, bool) {
	value, ok := e.lookup(name)
	value = strings.TrimSpace(value)
	return value, ok && value != ""
}

// number reads a variable into a field, if it is set.
func (e *environment) number(field string, to *int, name string) error {
	text, ok := e.get(name)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%s=%q is no count", name, text)
	}
	*to, e.source.From[field] = n, name
	return nil
}

// pair reads a rank and a size. It is an error if just one of them is there.
func (e *environment) pair(rank, size string) (bool, error) {
	_, hasRank := e.get(rank)
	_, hasSize := e.get(size)
	switch {
	case !hasRank && !hasSize:
		return false, nil
	case !hasRank:
		return false, fmt.Errorf("%s is set and %s is missing", size, rank)
	case !hasSize:
		return false, fmt.Errorf("%s is set and %s is missing", rank, size)
	}
	if err := e.number("Rank", &e.cfg.Rank, rank); err != nil {
		return false, err
	}
	return true, e.number("Size", &e.cfg.Size, size)
}

// local reads the place on the host; both may be missing, and then the size is unknown.
func (e *environment) local(rank, size string) error {
	e.cfg.LocalSize = 0
	if err := e.number("LocalRank", &e.cfg.LocalRank, rank); err != nil {
		return err
	}
	return e.number("LocalSize", &e.cfg.LocalSize, size)
}

// first returns the first variable that is set, and its name.
func (e *environment) first(names ...string) (value, name string) {
	for _, name := range names {
		if value, ok := e.get(name); ok {
			return value, name
		}
	}
	return "", ""
}
