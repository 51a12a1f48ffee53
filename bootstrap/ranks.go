package bootstrap

import (
	"fmt"
	"strings"
)

// rankList writes ascending rank numbers for a person: "rank 3", "ranks 0-2,5 (4 of them)".
func rankList(ranks []int) string {
	switch len(ranks) {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var b strings.Builder
	b.WriteString("ranks ")
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		switch {
		case j == i:
			fmt.Fprintf(&b, "%d", ranks[i])
		default:
			fmt.Fprintf(&b, "%d-%d", ranks[i], ranks[j])
		}
		i = j + 1
	}
	fmt.Fprintf(&b, " (%d of them)", len(ranks))
	return b.String()
}
