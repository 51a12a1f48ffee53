package recorder

import (
	"fmt"
	"strings"
	"time"
)

// names lists ranks: "rank 1", "ranks 0 to 3, 5".
func names(ranks []int) string {
	var b strings.Builder
	b.WriteString(verb(ranks, "rank ", "ranks "))
	for i := 0; i < len(ranks); {
		j := i + 1
		for j < len(ranks) && ranks[j] == ranks[j-1]+1 {
			j++
		}
		if i > 0 {
			b.WriteString(", ")
		}
		switch j - i {
		case 1:
			fmt.Fprintf(&b, "%d", ranks[i])
		case 2:
			fmt.Fprintf(&b, "%d, %d", ranks[i], ranks[i+1])
		default:
			fmt.Fprintf(&b, "%d to %d", ranks[i], ranks[j-1])
		}
		i = j
	}
	return b.String()
}

// verb chooses between singular and plural.
func verb(ranks []int, one, many string) string {
	if len(ranks) == 1 {
		return one
	}
	return many
}

// line is a rank's line in a report.
func (s *state) line() string {
	d := s.dump
	if d == nil {
		return fmt.Sprintf("rank %d: no dump", s.rank)
	}
	text := fmt.Sprintf("rank %d (pid %d on %s): ", s.rank, d.Pid, d.Host)
	switch {
	case d.Silent:
		return text + "in a call, no answer"
	case s.last == nil:
		return text + "no call yet"
	case s.now == nil:
		return text + s.last.Text + ", done"
	}
	text += s.now.Text + ", " + string(s.now.State)
	if w := s.now.Waited; w != nil {
		text += fmt.Sprintf(" after waiting for %v", d.At.Sub(*w).Round(time.Millisecond))
	}
	for _, l := range d.Lanes {
		text += fmt.Sprintf("; lane %d step %d/%d (%s)", l.Lane, l.Step, l.Steps, l.Doing)
		if len(l.WaitsFor) > 0 {
			text += " waits for " + names(l.WaitsFor)
		}
	}
	return text
}
