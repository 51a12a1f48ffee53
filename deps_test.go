package gccl_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gccl/gccl"

// imports is the import rule, floor by floor: what a package of the module may import of the module.
// A pattern that ends in "/..." covers the folder and all below it; the longest pattern wins. "zap"
// stands for the logger, which only these may use.
var imports = []struct{ pkg, may string }{
	// Floor 0: no goroutine, clock or logger.
	{"internal/cpu", ""},
	{"internal/invariant", ""},
	{"internal/futex", ""},
	{"internal/hostmem", "internal/futex internal/invariant"},
	{"internal/cuda/...", "internal/hostmem"},
	{"internal/kernel/...", "internal/kernel/..."},
	{"tensor", "internal/kernel"},
	{"schedule", ""},
	{"schedule/internal/machine", "schedule"},
	{"rdma", ""},
	{"internal/recorder", ""},
	{"internal/agree", ""},

	// Floor 1: algorithms, proofs, providers, the control plane.
	{"ring", "schedule"},
	{"tree", "schedule"},
	{"direct", "ring schedule"}, // two levels: its algorithms inside hosts, a ring across
	{"schedule/verify/...", "schedule/..."},
	{"schedule/simulate", "schedule/..."},
	{"rdma/loopback", "rdma"},
	{"rdma/faulty", "rdma"},
	{"rdma/rdmatest", "rdma internal/invariant"},
	{"rdma/shm/...", "rdma rdma/shm/... internal/hostmem internal/futex internal/invariant internal/cpu zap"},
	{"rdma/internal/rail", ""},
	{"rdma/tcp/...", "rdma rdma/internal/rail rdma/tcp/... internal/hostmem internal/invariant zap"},
	{"rdma/verbs/...", "rdma rdma/internal/rail rdma/verbs/... internal/hostmem internal/invariant zap"},
	{"bootstrap/...", "bootstrap/... zap"},

	// Floor 2: links and the executor.
	{"internal/link", "rdma internal/cpu"},
	{"internal/executor", "schedule tensor internal/link internal/cpu"},
	{"internal/gpudirect", "rdma internal/cuda"},
	{"internal/launch", "bootstrap"},
	{"internal/recovery", "bootstrap internal/agree"},

	// Floor 3: the only package that knows everybody, and how it chooses, which is pure.
	{"collective/tuner", "schedule"},
	{"collective/...", "bootstrap direct internal/... rdma rdma/... ring schedule schedule/... tensor tree collective/... zap"},

	// Floor 4.
	{"cmd/...", "bootstrap collective collective/... direct internal/launch internal/recorder ring schedule schedule/... tensor tree cmd/... zap"},
	{"examples/...", "bootstrap collective internal/launch tensor examples/... zap"},
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	eachGoFile(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return // tests may look anywhere
		}
		pkg := path.Dir(filepath.ToSlash(file))
		if pkg == "." {
			return
		}
		rule, pattern := ruleFor(pkg)
		if pattern == "" {
			t.Errorf("%s: no import rule for package %s: add it to deps_test.go, after a decision record", file, pkg)
			return
		}
		seen[pattern] = true
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, im := range f.Imports {
			p, err := strconv.Unquote(im.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(p, "go.uber.org/zap") {
				p = module + "/zap"
			}
			if rest, ok := strings.CutPrefix(p, module+"/"); ok && !allowed(rule, rest) {
				t.Errorf("%s: %s must not import %s (it may: %s)", file, pkg, rest, rule)
			}
		}
	})
	for _, r := range imports {
		if !seen[r.pkg] {
			t.Errorf("the import rule for %s matches no package", r.pkg)
		}
	}
}

func ruleFor(pkg string) (may, pattern string) {
	best := -1
	for _, r := range imports {
		if matches(r.pkg, pkg) && len(r.pkg) > best {
			may, pattern, best = r.may, r.pkg, len(r.pkg)
		}
	}
	return may, pattern
}

func allowed(rule, pkg string) bool {
	for _, p := range strings.Fields(rule) {
		if matches(p, pkg) {
			return true
		}
	}
	return false
}

func matches(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

// eachGoFile calls f for every Go file of the main module.
func eachGoFile(t *testing.T, f func(file string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			name := d.Name()
			if p != "." && (name[0] == '.' || name[0] == '_' || name == "testdata") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); p != "." && err == nil {
				return fs.SkipDir // another module
			}
			return nil
		}
		if strings.HasSuffix(p, ".go") {
			f(p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
