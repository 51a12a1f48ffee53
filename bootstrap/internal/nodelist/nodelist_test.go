package nodelist

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The expected lists are scontrol's (show hostnames).
func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                   "n1",
		"n[1-3]":               "n1 n2 n3",
		"n1,n2":                "n1 n2",
		"a[01-03,07]":          "a01 a02 a03 a07",
		"a[1-2]n[8-9]":         "a1n8 a1n9 a2n8 a2n9",
		"a[9-11],b":            "a9 a10 a11 b",
		"r[1-2]-x":             "r1-x r2-x",
		"h-[098-101].dom":      "h-098.dom h-099.dom h-100.dom h-101.dom",
		"a[1],b[2,4-5]c,d":     "a1 b2c b4c b5c d",
		"gpu-a[1-2],gpu-b[03]": "gpu-a1 gpu-a2 gpu-b03",
	} {
		got, err := Expand(list)
		require.NoError(t, err, list)
		assert.Equal(t, want, strings.Join(got, " "), list)
	}
	for _, list := range []string{"", "a,", ",a", "a[", "a]", "a[]", "a[x]", "a[3-1]", "a[1-2", "a[1-]", "a[-1]", "a[1,]",
		"a[0-99999999]", "a[0-9999][0-9999][0-9999]", "a[1[2]]"} {
		_, err := Expand(list)
		assert.Error(t, err, "%q", list)
	}
}

func TestTasks(t *testing.T) {
	for _, c := range []struct {
		list string
		node int
		want int
	}{{"4", 0, 4}, {"3,1", 0, 3}, {"3,1", 1, 1}, {"2(x2)", 1, 2}, {"2(x2),1", 2, 1}, {"2(x2),1(x3)", 4, 1}} {
		got, err := Tasks(c.list, c.node)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, "%s at %d", c.list, c.node)
	}
	for _, list := range []string{"", "x", "2(x", "2(x0)", "2(xa)", "-1", "2", "1,1"} {
		_, err := Tasks(list, 2)
		assert.Error(t, err, "%q", list)
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("a[01-03,07]n[8-11],b")
	f.Add("2(x2),1")
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := Expand(list)
		if err == nil && (len(hosts) == 0 || len(hosts) > maxHosts) {
			t.Errorf("%q: %d hosts", list, len(hosts))
		}
		// A list of the expanded hosts expands to itself.
		if err == nil && len(hosts) < 100 {
			if again, err := Expand(strings.Join(hosts, ",")); err != nil || fmt.Sprint(again) != fmt.Sprint(hosts) {
				t.Errorf("%q: %v, then %v (%v)", list, hosts, again, err)
			}
		}
		Tasks(list, 3)
	})
}
