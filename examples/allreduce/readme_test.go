package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows the example that the tests of package collective run, and its links lead somewhere.
func TestReadme(t *testing.T) {
	root := filepath.Join("..", "..")
	example, err := os.ReadFile(filepath.Join(root, "collective", "example_test.go"))
	require.NoError(t, err)
	_, code, ok := strings.Cut(string(example), "func Example() {")
	require.True(t, ok)
	code, _, ok = strings.Cut(code, "\n}\n")
	require.True(t, ok)
	link := regexp.MustCompile(`\]\(([^)#]+)\)`)
	for _, name := range []string{"README.md", "ARCHITECTURE.md"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		if name == "README.md" {
			require.Contains(t, string(b), "```go\nfunc Example() {"+code+"\n}\n```")
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if !strings.Contains(m[1], "://") {
				_, err := os.Stat(filepath.Join(root, m[1]))
				require.NoError(t, err, name)
			}
		}
	}
}
