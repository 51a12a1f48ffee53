package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gccl/gccl/bootstrap/internal/wire"
)

// firstAlarm is after how long a rank that waits for others says so for the first time.
const firstAlarm = 5 * time.Second

// job names what a rank must have in common with the others of its job.
func (cfg *Config) job() string {
	return fmt.Sprintf("run id %q (%s) and epoch %d", cfg.RunID, digestText(wire.DigestRun(cfg.RunID)), cfg.Epoch)
}

// digestText is short enough to compare by eye.
func digestText(d wire.RunDigest) string { return fmt.Sprintf("%x", d[:4]) }

// alarm says whom the root waits for.
func (r *registry) alarm() {
	missing := r.missing()
	if len(missing) == 0 {
		return
	}
	r.cfg.Alarm.Warn(fmt.Sprintf("rank 0 (%s) with %s waits for %s of %d%s",
		processOf(r.self), r.cfg.job(), rankList(missing), r.g.size, r.strangers(missing)))
}

// missing returns the ranks that have not registered.
func (r *registry) missing() []int {
	var out []int
	r.mu.Lock()
	defer r.mu.Unlock()
	for rank := 1; rank < r.g.size; rank++ {
		if r.members[rank] == nil {
			out = append(out, rank)
		}
	}
	return out
}

// strangers tells who wanted to register and was refused. Who only hung up may have come by another way:
// of those it names the missing.
func (r *registry) strangers(missing []int) string {
	var b strings.Builder
	for _, s := range r.door.Strangers() {
		h := s.Hello
		if h.Purpose != wire.Register || h.Run == r.door.Run && h.Epoch == r.door.Epoch && !slices.Contains(missing, int(h.Rank)) {
			continue
		}
		fmt.Fprintf(&b, "; refused %d times: rank %d of %d (pid %d at %s): %v", s.Times, h.Rank, h.Size, h.PID, s.From, s.Why)
		if h.Run != r.door.Run {
			fmt.Fprintf(&b, ": %s, not %s%s", digestText(h.Run), digestText(r.door.Run), unnamed(h.Run))
		}
	}
	return b.String()
}

// unnamed says what a digest tells if it is that of no run id.
func unnamed(d wire.RunDigest) string {
	if d == wire.DigestRun("") {
		return ", it has none"
	}
	return ""
}
