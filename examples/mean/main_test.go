package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program of the README, with the README's commands.
func TestMean(t *testing.T) {
	dir := t.TempDir()
	program, tool := filepath.Join(dir, "mean"), filepath.Join(dir, "gccl")
	for at, pkg := range map[string]string{program: ".", tool: "../../cmd/gccl"} {
		built, err := exec.Command("go", "build", "-o", at, pkg).CombinedOutput()
		require.NoError(t, err, string(built))
	}
	out, err := exec.Command(tool, "run", "-n", "4", "--", program).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, 4, strings.Count(string(out), " of 4: [1.5 1]\n"), string(out))
}
