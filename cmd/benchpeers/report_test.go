package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

// testdata/rows.json is a small run with everything in it: both ways to lose, noise, failures, bounds.
func TestReportGolden(t *testing.T) {
	dir := t.TempDir()
	page := "before\n" + begin + "old\n" + end + "after\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "performance.md"), []byte(page), 0o600))
	require.NoError(t, writeReport("testdata/rows.json", dir))
	for _, name := range []string{"performance.md", "performance.svg"} {
		got := mustRead(t, filepath.Join(dir, name))
		golden := filepath.Join("testdata", name)
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
		}
		assert.Equal(t, mustRead(t, golden), got, "%s; -update rewrites it", name)
	}
}

func TestReportTwiceIsTheSame(t *testing.T) {
	f, err := os.Open("testdata/rows.json")
	require.NoError(t, err)
	defer f.Close()
	m, err := read(f)
	require.NoError(t, err)
	first := string(report(m))
	for range 20 {
		require.Equal(t, first, string(report(m)))
	}
	assert.Contains(t, first, "The least ratio is 0.50: allreduce, 2 ranks, 64 MiB, slices.")
}

func TestPlotIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(mustRead(t, "testdata/performance.svg")))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

func TestReplaceNeedsTheMarks(t *testing.T) {
	_, err := replace([]byte("no marks"), nil)
	assert.Error(t, err)
	_, err = replace([]byte(end+begin), nil)
	assert.Error(t, err)
}

// The page of the project has the marks.
func TestPageHasTheMarks(t *testing.T) {
	_, err := replace([]byte(mustRead(t, "../../docs/performance.md")), nil)
	assert.NoError(t, err)
}

func TestUnits(t *testing.T) {
	assert.Equal(t, []string{"–", "8 B", "1 KiB", "1.5 KiB", "256 MiB", "23.5 GiB"}, []string{size(0), size(8), size(1024), size(1536), size(256 << 20), size(47 << 29)})
	assert.Equal(t, []string{"0.071", "1.23", "12.3", "4460"}, []string{micros(0.071), micros(1.234), micros(12.34), micros(4460.4)})
}
