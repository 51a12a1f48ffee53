package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStartup(t *testing.T) {
	cleanEnvironment(t)
	plot := filepath.Join(t.TempDir(), "p.svg")
	out, errs, code := program(t, "startup", "--ranks", "1,3,65", "--ways", "bootstrap,goroutines", "--plot", plot)
	require.Zero(t, code, errs)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 1+2*3, out)
	b, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(b), "<polyline"))
	require.Contains(t, string(b), ">ranks</text>")
	out, errs, code = program(t, "startup", "--ranks", "4", "--ways", "processes")
	require.Zero(t, code, errs)
	require.Regexp(t, `processes +4 +\d+\.\d{3}`, out)
	_, errs, code = program(t, "startup", "--ways", "magic")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no such way")
}
