//go:build unix

package collective_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// From here on a case is told with where its time went.
const (
	slowNotice   = 100 * time.Millisecond
	slowRecovery = time.Second
)

// note prints a line of a rank's own account of a recovery.
func note(format string, a ...any) {
	fmt.Printf("note at %d: %s\n", time.Now().UnixNano(), fmt.Sprintf(format, a...))
}

// tellGaps notes when this process did not run.
func tellGaps() {
	const tick, worth = 10 * time.Millisecond, 50 * time.Millisecond
	for last := time.Now(); ; {
		time.Sleep(tick)
		now := time.Now()
		if gap := now.Sub(last); gap > worth {
			note("has not run for %v", gap)
		}
		last = now
	}
}

var noteLine = regexp.MustCompile(`^\[\d\] .*? at (\d{19}):? ?`)

// between picks the lines of ranks of a span of time, each with the time since its beginning.
func between(text string, from time.Time, d time.Duration) string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	for l := range strings.Lines(text) {
		m := noteLine.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		ns, _ := strconv.ParseInt(m[1], 10, 64)
		if at := time.Unix(0, ns).Sub(from); at >= 0 && at <= d {
			lines = append(lines, line{at, strings.Replace(l, " at "+m[1], "", 1)})
		}
	}
	slices.SortFunc(lines, func(a, b line) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "  +%v %s", l.at.Round(10*time.Microsecond), l.text)
	}
	return b.String()
}

// watchHolds looks for times in which this process does not run although it wants to, until the returned
// function is called. That returns how much of a span of time they take.
func watchHolds() func() (within func(from, to time.Time) time.Duration) {
	const tick, worth = 5 * time.Millisecond, 100 * time.Millisecond
	type hold struct{ from, to time.Time }
	stop, stopped := make(chan struct{}), make(chan struct{})
	var holds []hold
	go func() {
		defer close(stopped)
		t := time.NewTicker(tick)
		defer t.Stop()
		for last := time.Now(); ; {
			select {
			case <-t.C:
			case <-stop:
				return
			}
			now := time.Now()
			if now.Sub(last) > worth {
				holds = append(holds, hold{last, now})
			}
			last = now
		}
	}()
	return func() func(from, to time.Time) time.Duration {
		close(stop)
		<-stopped
		return func(from, to time.Time) (d time.Duration) {
			for _, h := range holds {
				a, b := h.from, h.to
				if a.Before(from) {
					a = from
				}
				if b.After(to) {
					b = to
				}
				d += max(0, b.Sub(a))
			}
			return d
		}
	}
}

// readCampaign returns a provider's kills of earlier runs.
func readCampaign(t *testing.T, provider string) (out []casualty) {
	if *campaignLog == "" {
		return nil
	}
	f, err := os.Open(*campaignLog)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var c casualty
		require.NoError(t, json.Unmarshal(s.Bytes(), &c))
		if c.Provider == provider {
			out = append(out, c)
		}
	}
	return out
}

// appendCampaign keeps kills for later runs, each a line of JSON.
func appendCampaign(t *testing.T, cs []casualty) {
	if *campaignLog == "" {
		return
	}
	f, err := os.OpenFile(*campaignLog, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	e := json.NewEncoder(f)
	for _, c := range cs {
		require.NoError(t, e.Encode(c))
	}
	require.NoError(t, f.Close())
}

// tell logs the rows of the table in docs/reliability.md. Of what fell into a time in which the whole machine
// was held it says how many there were, and counts the rest.
func tell(t *testing.T, name string, all []casualty) {
	var learned, slowest, resumed []time.Duration
	held := 0
	for _, c := range all {
		if c.Held > 0 {
			held++
			continue
		}
		learned, resumed = append(learned, c.Learned...), append(resumed, c.Resumed...)
		slowest = append(slowest, slices.Max(c.Learned))
	}
	if held > 0 {
		t.Logf("%s: %d of %d fell into a time in which the machine was held", name, held, len(all))
	}
	t.Logf("| %s | each survivor's error | %s |", name, quantiles(learned))
	t.Logf("| %s | the last survivor's error | %s |", name, quantiles(slowest))
	t.Logf("| %s | correct reduction after Shrink | %s |", name, quantiles(resumed))
}

// quantiles is the rest of a row.
func quantiles(ds []time.Duration) string {
	if len(ds) == 0 {
		return "0"
	}
	slices.Sort(ds)
	at := func(q float64) time.Duration {
		return ds[min(len(ds)-1, int(q*float64(len(ds))))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d | %v | %v | %v | %v", len(ds), at(0.5), at(0.9), at(0.99), ds[len(ds)-1].Round(10*time.Microsecond))
}
