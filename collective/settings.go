package collective

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gccl/gccl/bootstrap"
	"github.com/gccl/gccl/collective/tuner"
	"github.com/gccl/gccl/internal/launch"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Setting is one row of the table of settings.
type Setting struct {
	Name    string   // GCCL_…
	Aliases []string // names of other libraries that are understood, too
	Type    string
	Default string
	Help    string
	set     func(*Config, string) error
}

// Value is a setting as this process has it.
type Value struct {
	Setting
	Value  string
	Source string // the variable it came from, or "default"
}

// Settings returns the table, in the order in which it should be shown. Variables that say who a
// rank is (GCCL_RANK …) are bootstrap's and in docs/launchers.md.
func Settings() []Setting {
	return []Setting{
		{"GCCL_PROVIDER", nil, "list", "auto", "providers to try for a pair of ranks, in order; ^ excludes; the same on all ranks", text(func(c *Config) *string { return &c.Provider })},
		{"GCCL_STRICT", nil, "bool", "0", "refuse to start if a provider that GCCL_PROVIDER names cannot be opened", boolean(func(c *Config) *bool { return &c.Strict })},
		{"GCCL_TIMEOUT", nil, "duration", "10m", "longest call; 0 or off: none", duration(func(c *Config) *time.Duration { return &c.Timeout })},
		{"GCCL_NCHANNELS", []string{"NCCL_MAX_NCHANNELS", "NCCL_NCHANNELS"}, "count", "2", "copies of an algorithm that run side by side; the same on all ranks", number("GCCL_NCHANNELS")},
		{"GCCL_BUFFSIZE", []string{"NCCL_BUFFSIZE"}, "bytes", "auto", "ring buffer between two ranks, per lane and direction; the same on all ranks", number("GCCL_BUFFSIZE")},
		{"GCCL_SLOTS", nil, "count", "auto", "slots of a ring buffer, a power of two; the same on all ranks", number("GCCL_SLOTS")},
		{"GCCL_SPIN", nil, "count", "auto", "polls before a waiting rank yields its core; 0: none", spin},
		{"GCCL_LAZY", nil, "choice", "auto", "make links when they are wanted: 1; all at the start: 0; auto: 1 above 8 ranks; the same on all ranks", threeWay(func(c *Config) *int { return &c.Lazy })},
		{"GCCL_CMA", nil, "choice", "auto", "this rank and those of its host read long messages in each other's memory (cross-memory attach): 1; all are copied: 0; auto: 1 where that is permitted and faster; a sender waits until its message has been read", threeWay(func(c *Config) *int { return &c.CMA })},
		{"GCCL_LEND_MIN", nil, "bytes", "auto", "shortest transfer read in place: from registered memory and, where GCCL_CMA has ranks read each other's, from any", number("GCCL_LEND_MIN")},
		{"GCCL_ALGO", []string{"NCCL_ALGO"}, "rules", "all", "algorithms to use: [collective:][from-to=]name|…, ^ excludes; ; between rules; the same on all ranks", algo},
		{"GCCL_REPRODUCIBLE", nil, "bool", "0", "reductions whose bits depend only on data and number of ranks; the same on all ranks", boolean(func(c *Config) *bool { return &c.Reproducible })},
		{"GCCL_TUNING_FILE", nil, "path", "none", "measured times to choose algorithms by, written by gccl tune; the same content on all ranks", text(func(c *Config) *string { return &c.TuningFile })},
		{"GCCL_HOSTID", []string{"NCCL_HOSTID"}, "text", "kernel's boot id", "identity of this host, for simulated hosts; ranks in different network namespaces are of different hosts in any case", text(func(c *Config) *string { return &c.HostID })},
		{"GCCL_SOCKET_IFNAME", []string{"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}, "list", "all", "network interfaces: prefixes, = exact, ^ exclude", text(func(c *Config) *string { return &c.Bootstrap.Interface })},
		{"GCCL_TCP_ENCRYPT", nil, "bool", "0", "TLS 1.3 on the connections of the tcp provider; the same on all ranks", boolean(func(c *Config) *bool { return &c.TCPEncrypt })},
		{"GCCL_CHECKSUM", nil, "bool", "0", "CRC-32C of every message from rank to rank, over every provider; the same on all ranks", boolean(func(c *Config) *bool { return &c.Checksum })},
		{"GCCL_TCP_CHECKSUM", nil, "bool", "0", "CRC-32C of every payload that this rank sends over tcp", boolean(func(c *Config) *bool { return &c.TCPChecksum })},
		{"GCCL_TCP_SOCKETS", nil, "count", "1", "sockets to a peer over tcp, which share long writes; at most 16", number("GCCL_TCP_SOCKETS")},
		{"GCCL_IB_HCA", []string{"NCCL_IB_HCA"}, "list", "all", "RDMA devices: prefixes[:port], = exact, ^ exclude", text(func(c *Config) *string { return &c.HCA })},
		{"GCCL_IB_QPS", []string{"NCCL_IB_QPS_PER_CONNECTION"}, "count", "1", "RDMA queue pairs to a peer, which share long writes; over two ports if GCCL_IB_HCA names them; the same on all ranks", number("GCCL_IB_QPS")},
		{"GCCL_IB_TIMEOUT", []string{"NCCL_IB_TIMEOUT"}, "code", "17", "RDMA: wait 4.096 µs × 2^code for an acknowledgement, seven times; a dead peer is noticed after 2.5 s with 17, twice that with 18", number("GCCL_IB_TIMEOUT")},
		{"GCCL_IB_GID_INDEX", []string{"NCCL_IB_GID_INDEX"}, "index", "auto", "RDMA: entry of the port's table of GIDs; auto (or -1): by RoCE version, address family and the peer's addresses", gidIndex},
		{"GCCL_IB_TC", []string{"NCCL_IB_TC"}, "byte", "0", "RDMA: traffic class, in RoCE v2 the IP header's: DSCP times four", number("GCCL_IB_TC")},
		{"GCCL_IB_SL", []string{"NCCL_IB_SL"}, "count", "0", "RDMA: InfiniBand service level, 0 to 15", number("GCCL_IB_SL")},
		{"GCCL_IB_PKEY", []string{"NCCL_IB_PKEY"}, "index", "0", "RDMA: entry of the port's table of partition keys", number("GCCL_IB_PKEY")},
		{"GCCL_HEARTBEAT", nil, "duration", "10s", "how long a rank may show no sign of life while it is waited for; 0 or off: for ever; the default is longer where more than 8 ranks share a core", duration(func(c *Config) *time.Duration { return &c.Heartbeat })},
		{"GCCL_DUMP_DIR", nil, "path", "none", "where ranks leave their flight records when a call fails, for gccl why", text(func(c *Config) *string { return &c.DumpDir })},
		{"GCCL_DUMP_SIGNAL", nil, "bool", "0", "write flight records at SIGUSR1, too", boolean(func(c *Config) *bool { return &c.DumpSignal })},
		{"GCCL_DEVICE_PATH", nil, "name", "auto", "how network cards reach tensors in device memory: auto, dmabuf, peermem or staged", devicePath},
		{"GCCL_CUDA_LIBRARY", nil, "path", "libcuda.so.1", "CUDA driver library, for programs built with the tag cuda", text(func(c *Config) *string { return &c.CUDALibrary })},
		{"GCCL_DEBUG", []string{"NCCL_DEBUG"}, "level", "alarms", "log to standard error: silent, warn, info or trace; alarms, which is when it is not set: what a user must know, like whom the start waits for", debug},
	}
}

func text(at func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error { *at(c) = v; return nil }
}

func boolean(at func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) (err error) { *at(c), err = parseBool(v); return err }
}

func parseBool(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, errors.New("want 0 or 1")
	}
	return b, nil
}

func duration(at func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) error {
		d, err := parseDuration(v)
		*at(c) = d
		return err
	}
}

// parseDuration reads a duration, or seconds; −1 stands for none.
func parseDuration(v string) (time.Duration, error) {
	if v == "off" || v == "0" {
		return -1, nil
	}
	d, err := time.ParseDuration(v)
	if s, e := strconv.ParseFloat(v, 64); e == nil {
		d, err = time.Duration(s*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return 0, errors.New("want a duration like 90s or 10m, a number of seconds, 0 or off")
	}
	return d, nil
}

// threeWay reads 0 and 1 for never (-1) and always (1); what the zero value means is auto.
func threeWay(at func(*Config) *int) func(*Config, string) error {
	return func(c *Config, v string) error {
		p := at(c)
		if *p = 0; v == "auto" {
			return nil
		}
		always, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("want 0, 1 or auto")
		}
		if *p = -1; always {
			*p = 1
		}
		return nil
	}
}

// ParseBytes reads a count with an optional suffix K, M or G of 1024.
func ParseBytes(s string) (int, error) {
	shift := 0
	if n := len(s); n > 0 {
		shift = map[byte]int{'K': 10, 'k': 10, 'M': 20, 'm': 20, 'G': 30, 'g': 30}[s[n-1]]
		if shift > 0 {
			s = s[:n-1]
		}
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v > 1<<62>>shift || v < -1<<62>>shift {
		return 0, fmt.Errorf("not a number, with K, M or G at most: %q", s)
	}
	return int(v << shift), nil
}

// algo takes rules, and refuses wrong ones already here, where the variable's name is known.
func algo(c *Config, v string) error {
	_, err := tuner.ParseRules(v, catalog())
	c.Algo = v
	return err
}

// gidIndex takes an entry of a port's table of GIDs, or that it be chosen.
func gidIndex(c *Config, v string) error {
	if c.IBGIDIndex = nil; v == "auto" || v == "-1" {
		return nil
	}
	i, err := strconv.ParseUint(v, 10, 8)
	if err != nil {
		return errors.New("want auto or 0 to 255")
	}
	index := int(i)
	c.IBGIDIndex = &index
	return nil
}

func devicePath(c *Config, v string) error {
	c.DevicePath = v
	return checkDevicePath(v)
}

func debug(c *Config, v string) error {
	level := zap.InfoLevel
	switch strings.ToLower(v) {
	case "", "silent", "alarms", "version":
		return nil
	case "warn":
		level = zap.WarnLevel
	case "info":
	case "trace", "debug":
		level = zap.DebugLevel
	default:
		return fmt.Errorf("want silent, alarms, warn, info or trace")
	}
	log, err := logger(level)
	c.Logger = log
	return err
}

// logger writes lines of a level and above to standard error.
func logger(level zapcore.Level) (*zap.Logger, error) {
	cfg := zap.NewProductionConfig()
	cfg.Level, cfg.Encoding, cfg.Sampling = zap.NewAtomicLevelAt(level), "console", nil
	cfg.EncoderConfig = zap.NewDevelopmentEncoderConfig()
	cfg.DisableStacktrace = true
	return cfg.Build()
}

// ConfigFromEnv reads the environment: who this rank is (bootstrap.FromEnv) and every setting.
// lookup is os.LookupEnv, or the C library's getenv in a host program that changes its environment.
// With a setting that is refused it returns the error and the place that the rank would have had.
func ConfigFromEnv(lookup func(string) (string, bool)) (Config, error) {
	cfg, values, refused := readSettings(lookup)
	b, src, err := bootstrap.FromEnv(func(name string) (string, bool) {
		v, ok := lookup(name)
		if name == "GCCL_TIMEOUT" && refused != nil {
			if _, err := parseDuration(v); err != nil {
				return "", false // bootstrap, which reads it too, would refuse it once more, and not say the rank's place
			}
		}
		return v, ok
	})
	if err != nil {
		return Config{}, errors.Join(refused, err)
	}
	b.Interface = cfg.Bootstrap.Interface
	if err := launch.Inherit(&b); err != nil {
		return Config{}, errors.Join(refused, fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	cfg.Bootstrap = b
	if refused != nil {
		return cfg, refused
	}
	if cfg.Logger != nil {
		cfg.Bootstrap.Logger = cfg.Logger
		cfg.Logger.Info("environment", zap.String("launcher", src.Launcher), zap.Any("from", src.From), zap.Strings("settings", notDefault(values)))
	}
	return cfg, cfg.warn(lookup)
}

// warn lets the user know even without GCCL_DEBUG, unless that is silent, for whom the start waits and what is
// left out that was asked for, and, in a line each, on one rank of a host, which variables nothing reads or takes.
func (c *Config) warn(lookup func(string) (string, bool)) error {
	if level, _ := lookup("GCCL_DEBUG"); strings.EqualFold(level, "silent") {
		return nil
	}
	log := c.Logger
	if log == nil {
		var err error
		if log, err = logger(zap.WarnLevel); err != nil {
			return fmt.Errorf("%w: %w", ErrInternal, err)
		}
	}
	c.Bootstrap.Alarm = log
	if c.Bootstrap.LocalRank > 0 {
		return nil
	}
	for _, lines := range [][]string{Unknown(os.Environ()), c.ignored} {
		if len(lines) > 0 {
			log.Warn(strings.Join(lines, "; "))
		}
	}
	return nil
}

// readSettings fills a Config. A value of another library's variable that is not understood is left out: it
// was not meant for this one. One of a variable of gccl's own is an error.
func readSettings(lookup func(string) (string, bool)) (Config, []Value, error) {
	var cfg Config
	var values []Value
	var wrong []error
	for _, s := range Settings() {
		v := Value{Setting: s, Value: s.Default, Source: "default"}
		for _, name := range append([]string{s.Name}, s.Aliases...) {
			got, ok := lookup(name)
			if !ok || got == "" {
				continue
			}
			next := cfg
			err := s.set(&next, got)
			if err != nil && name != s.Name {
				cfg.ignored = append(cfg.ignored, fmt.Sprintf("%s=%q is ignored, for gccl has no such value of %s", name, got, s.Name))
				continue
			}
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%w: %s=%q (%s): %v", ErrInvalid, name, got, s.Help, err))
			} else {
				cfg = next
			}
			v.Value, v.Source = got, name
			break
		}
		values = append(values, v)
	}
	return cfg, values, errors.Join(wrong...)
}

// Values returns every setting with its value and where that came from, and an error that lists the values
// that are refused.
func Values(lookup func(string) (string, bool)) ([]Value, error) {
	_, vs, err := readSettings(lookup)
	return vs, err
}

func notDefault(vs []Value) []string {
	var out []string
	for _, v := range vs {
		if v.Source != "default" {
			out = append(out, v.Source+"="+v.Value)
		}
	}
	return out
}
