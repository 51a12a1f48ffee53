// Package nodelist expands Slurm's compressed lists of hosts and of task counts. The program scontrol,
// which does the same, is often missing in containers.
package nodelist

import (
	"fmt"
	"strconv"
	"strings"
)

// maxHosts bounds an expanded list.
const maxHosts = 1 << 20

// Expand returns the hosts of a list like "a[01-03,07]n[8-11],b" in order: brackets hold numbers and
// ranges, keep leading zeros, and may occur several times in a name, the rightmost varying fastest.
func Expand(list string) ([]string, error) {
	var hosts []string
	for _, part := range splitTop(list) {
		names, err := expandName(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("node list %q: %w", list, err)
		}
		if hosts = append(hosts, names...); len(hosts) > maxHosts {
			return nil, fmt.Errorf("node list of more than %d hosts", maxHosts)
		}
	}
	return hosts, nil
}

// splitTop splits at the commas outside brackets.
func splitTop(list string) []string {
	var parts []string
	depth, start := 0, 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[start:i])
				start = i + 1
			}
		}
	}
	return append(parts, list[start:])
}

func expandName(name string) ([]string, error) {
	if name == "" {
		return nil, fmt.Errorf("empty host name")
	}
	names := []string{""}
	for name != "" {
		fixed, rest, bracket := strings.Cut(name, "[")
		variants := []string{""}
		if bracket {
			inside, after, closed := strings.Cut(rest, "]")
			if !closed {
				return nil, fmt.Errorf("bracket without end")
			}
			var err error
			if variants, err = expandRanges(inside); err != nil {
				return nil, err
			}
			rest = after
		}
		if strings.Contains(fixed, "]") {
			return nil, fmt.Errorf("bracket without start")
		}
		if len(names)*len(variants) > maxHosts {
			return nil, fmt.Errorf("more than %d hosts", maxHosts)
		}
		longer := make([]string, 0, len(names)*len(variants))
		for _, n := range names {
			for _, v := range variants {
				longer = append(longer, n+fixed+v)
			}
		}
		names, name = longer, rest
	}
	return names, nil
}

// expandRanges expands what stands in one pair of brackets.
func expandRanges(inside string) ([]string, error) {
	var out []string
	for _, part := range strings.Split(inside, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		lo, err := strconv.ParseUint(from, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no number", from)
		}
		hi, err := strconv.ParseUint(to, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is no number", to)
		}
		if hi < lo || hi-lo >= maxHosts || len(from) > 16 {
			return nil, fmt.Errorf("%q is no range", part)
		}
		for n := lo; n <= hi; n++ {
			out = append(out, fmt.Sprintf("%0*d", len(from), n))
		}
	}
	return out, nil
}

// Tasks returns the task count of one node from a list like "3,1" or "2(x2),1".
func Tasks(list string, node int) (int, error) {
	for _, part := range strings.Split(list, ",") {
		count, repeat, repeated := strings.Cut(part, "(x")
		times := 1
		if repeated {
			digits, closed := strings.CutSuffix(repeat, ")")
			n, err := strconv.Atoi(digits)
			if err != nil || !closed || n < 1 {
				return 0, fmt.Errorf("task list %q: bad repetition", list)
			}
			times = n
		}
		n, err := strconv.Atoi(count)
		if err != nil || n < 0 {
			return 0, fmt.Errorf("task list %q: %q is no count", list, count)
		}
		if node < times {
			return n, nil
		}
		node -= times
	}
	return 0, fmt.Errorf("task list %q ends before node %d more", list, node)
}
