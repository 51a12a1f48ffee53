package launch

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLongLines: a line is cut at maxLine, and its end adds no empty line.
func TestLongLines(t *testing.T) {
	for _, n := range []int{maxLine - 1, maxLine, 2 * maxLine} {
		var got bytes.Buffer
		w := (&lines{out: &got}).writer("", false)
		line := strings.Repeat("x", n)
		for b := []byte(line); len(b) > 0; {
			k := min(len(b), 32<<10) // as os/exec copies
			_, _ = w.Write(b[:k])
			b = b[k:]
		}
		_, _ = w.Write([]byte("\n\nend\n"))
		w.flush()
		require.Equal(t, line+"\n\nend\n", strings.Replace(got.String(), "x\nx", "xx", 1), "%d bytes", n)
	}
}
