package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows examples/mean, and its links lead somewhere.
func TestReadme(t *testing.T) {
	root := filepath.Join("..", "..")
	program, err := os.ReadFile(filepath.Join(root, "examples", "mean", "main.go"))
	require.NoError(t, err)
	link := regexp.MustCompile(`\]\(([^)#]+)\)`)
	for _, name := range []string{"README.md", "ARCHITECTURE.md"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		if name == "README.md" {
			require.Contains(t, string(b), "```go\n"+string(program)+"```")
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if !strings.Contains(m[1], "://") {
				_, err := os.Stat(filepath.Join(root, m[1]))
				require.NoError(t, err, name)
			}
		}
	}
}
