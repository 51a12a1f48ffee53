package gccl_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is the ceiling of a file, generated ones excepted.
const maxLines = 500

// rule is a habit of the house that a pattern can see.
type rule struct {
	pattern *regexp.Regexp
	except  func(file string) bool
	instead string
}

var rules = []rule{
	{
		regexp.MustCompile(`\batomic\.(Load|Store|Add|Swap|CompareAndSwap|And|Or)(Int32|Int64|Uint32|Uint64|Uintptr|Pointer)\(`),
		func(f string) bool { return strings.HasSuffix(f, "_unsafe.go") },
		"use the types of sync/atomic (atomic.Uint64 …): a plain word is read plainly somewhere sooner or later",
	},
	{
		regexp.MustCompile(`\bfunc init\(\)`),
		func(string) bool { return false },
		"pass what is needed to whoever needs it: no init magic, no global registries",
	},
	{
		regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`),
		func(f string) bool { return f == "lint_test.go" },
		"finish it, or open an issue",
	},
	{
		regexp.MustCompile(`\btime\.Sleep\([^/]*$`), // a sleep with a comment behind it gives its reason
		func(f string) bool { return strings.HasSuffix(f, "_test.go") || strings.Contains(f, "rdmatest") },
		"wait for the event, with a context or a timer that can be stopped",
	},
	{
		regexp.MustCompile(`\bfmt\.Print`),
		func(f string) bool {
			return strings.HasPrefix(f, "cmd/") || strings.HasPrefix(f, "examples/") || strings.HasSuffix(f, "_test.go")
		},
		"a library is silent: return an error or use the logger",
	},
}

func TestHouseRules(t *testing.T) {
	eachGoFile(t, func(file string) {
		file = filepath.ToSlash(file)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		generated := bytes.Contains(b[:min(len(b), 400)], []byte("Code generated"))
		if n := bytes.Count(b, []byte("\n")); n > maxLines && !generated {
			t.Errorf("%s has %d lines, the ceiling is %d: one idea a file", file, n, maxLines)
		}
		for _, r := range rules {
			if r.except(file) {
				continue
			}
			for i, line := range bytes.Split(b, []byte("\n")) {
				if r.pattern.Match(line) {
					t.Errorf("%s:%d: %s: %s", file, i+1, bytes.TrimSpace(line), r.instead)
				}
			}
		}
	})
}

// unsafeFiles may import unsafe beside those named *_unsafe.go, each for the reason given.
var unsafeFiles = map[string]string{
	"rdma/verbs/internal/ibv/layout_cgo.go": "holds the layouts against the installed C header, under a build tag",
}

func TestUnsafeOnlyWhereNamed(t *testing.T) {
	eachGoFile(t, func(file string) {
		file = filepath.ToSlash(file)
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, im := range f.Imports {
			if im.Path.Value == `"unsafe"` && !strings.HasSuffix(file, "_unsafe.go") && !strings.HasSuffix(file, "_test.go") && unsafeFiles[file] == "" {
				t.Errorf("%s imports unsafe: move it to a file named *_unsafe.go that does nothing else", file)
			}
		}
	})
}

// Every package says what it is.
func TestPackagesHaveDocs(t *testing.T) {
	docs := map[string]bool{}
	eachGoFile(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.ToSlash(filepath.Dir(file))
		docs[dir] = docs[dir] || hasDoc(f)
	})
	for dir, ok := range docs {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

func hasDoc(f *ast.File) bool { return f.Doc != nil && strings.TrimSpace(f.Doc.Text()) != "" }
