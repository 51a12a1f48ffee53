//go:build linux && (amd64 || arm64) && !noverbs

package verbs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// fakeVariable is the path of the fake libibverbs in processes that run over it.
const fakeVariable = "GCCL_VERBS_FAKE"

// TestOverFakeLibrary runs the tests that a library without a card can do, in a process whose libibverbs is
// testdata/verbs.c: the library that is loaded in this one stays.
func TestOverFakeLibrary(t *testing.T) {
	if os.Getenv(fakeVariable) != "" {
		t.Skip("this is over the fake library")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("GCCL_CUDA_FAKE") == "must" {
			t.Fatalf("the fake libibverbs needs a C compiler: %v", err)
		}
		t.Skipf("NOT TESTED: the fake libibverbs needs a C compiler (Debian: apt install gcc libc6-dev): %v", err)
	}
	dir := t.TempDir()
	lib := filepath.Join(dir, "libibverbs.so.1")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-fvisibility=hidden", "-o", lib, "testdata/verbs.c", "-lpthread").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(os.Args[0], "-test.run=^(TestConformance|TestRails(Exchange|Fail.*)|TestAutonomous|TestClose.*|TestDeviceMemory|TestGPUDirect)$|^TestConformanceRails$/^3_on_2$", "-test.v",
		"-test.skip=^TestConformance$/^Device$/^AttrIsFilled$|^TestConformanceRails$/./^Device$/^AttrIsFilled$") // the kernel tells bandwidth, of real devices
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, fakeVariable+"="+lib)
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	want := []string{
		"TestConformance", "TestConformanceRails", "TestRailsExchange", "TestRailsFailAnywhere", "TestRailsFailTwice", "TestRailsFailAll",
		"TestRailsFailWithOthersLate", "TestAutonomous", "TestDeviceMemory", "TestCloseBesideNewEndpoint", "TestCloseBesideDevice",
	}
	if withCUDA {
		want = append(want, "TestGPUDirect")
	}
	for _, name := range want {
		require.Regexp(t, regexp.MustCompile(`(?m)^--- PASS: `+name+` `), string(out))
	}
	t.Logf("%s", out)
}

// control calls a function of the fake library, or skips the test where there is none.
func control(t *testing.T) func(name string, args ...uintptr) uintptr {
	t.Helper()
	path := os.Getenv(fakeVariable)
	if path == "" {
		t.Skip("runs over the fake library, by TestOverFakeLibrary")
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL) // the one that is loaded
	require.NoError(t, err)
	return func(name string, args ...uintptr) uintptr {
		fn, err := purego.Dlsym(lib, name)
		require.NoError(t, err)
		r, _, _ := purego.SyscallN(fn, args...)
		return r
	}
}
