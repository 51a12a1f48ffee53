package collective

import (
	"slices"
	"strings"
)

// bootstrapNames are the variables that bootstrap reads.
func bootstrapNames() []string {
	return []string{"GCCL_RANK", "GCCL_SIZE", "GCCL_ROOT", "GCCL_LOCAL_RANK", "GCCL_LOCAL_SIZE", "GCCL_SECRET", "GCCL_RUN_ID", "GCCL_EPOCH", "GCCL_RENDEZVOUS", "GCCL_PORT_RANGE", "GCCL_ROOT_FD", "GCCL_ALLOW_LOOPBACK", "GCCL_RSH"}
}

// internalNames are beginnings of variables that programs of this module pass to their own processes.
var internalNames = []string{"GCCL_TOOL_", "GCCL_TEST_"}

// Unknown returns a warning for every GCCL_ variable of an environment that nothing reads, with
// the nearest name that exists, if one is near: a typo is otherwise a setting silently not made.
func Unknown(environ []string) []string {
	known := bootstrapNames()
	for _, s := range Settings() {
		known = append(known, s.Name)
	}
	var out []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "GCCL_") || slices.Contains(known, name) || slices.ContainsFunc(internalNames, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		best := slices.MinFunc(known, func(a, b string) int { return distance(a, name) - distance(b, name) })
		text := name + " is not a setting"
		if distance(best, name) <= 1+len(name)/3 {
			text += "; did you mean " + best + "?"
		}
		out = append(out, text)
	}
	return out
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cur := row[j+1]
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(row[j]+1, cur+1, prev+cost)
			prev = cur
		}
	}
	return row[len(b)]
}
