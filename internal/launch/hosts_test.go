package launch

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseHosts(t *testing.T) {
	hosts, err := ParseHosts("a:2, b,10.0.0.1:3,fd00::1,[fd00::2]:4,[fd00::3]")
	require.NoError(t, err)
	require.Equal(t, []Host{{"a", 2}, {"b", 1}, {"10.0.0.1", 3}, {"fd00::1", 1}, {"fd00::2", 4}, {"fd00::3", 1}}, hosts)
	for _, bad := range []string{"", "a,", ":2", "a:0", "a:-1", "a:x", "a:70000", "-oProxyCommand=x", "a b", "a;b", "[a]:2", "$(x):2"} {
		_, err := ParseHosts(bad)
		require.Error(t, err, "%q", bad)
	}
}

func TestReadHosts(t *testing.T) {
	hosts, err := ReadHosts(strings.NewReader("# hosts\na slots=2\n\nb:3 # two\nc\n"))
	require.NoError(t, err)
	require.Equal(t, []Host{{"a", 2}, {"b", 3}, {"c", 1}}, hosts)
	for bad, why := range map[string]string{"": "names no host", "a 2": "HOST slots=N", "a slots=x": "line 1", "a:1\nb slots=0": "line 2"} {
		_, err := ReadHosts(strings.NewReader(bad))
		require.ErrorContains(t, err, why, "%q", bad)
	}
}

func TestSeats(t *testing.T) {
	self, err := os.Hostname()
	require.NoError(t, err)
	j := Job{Size: 6, Hosts: []Host{{"far", 2}, {"localhost", 1}, {self, 1}, {"far", 4}}}
	seats, err := j.seats()
	require.NoError(t, err)
	require.Equal(t, []seat{
		{"far", true, 0, 4}, {"far", true, 1, 4}, {"localhost", false, 0, 2}, {self, false, 1, 2}, {"far", true, 2, 4}, {"far", true, 3, 4},
	}, seats)
	j.Size = 9
	_, err = j.seats()
	require.ErrorContains(t, err, "room for 8")
	j.Size = 0
	_, err = j.seats()
	require.Error(t, err)
}

func TestQuote(t *testing.T) {
	require.Equal(t, `'a'\''b $c'`, quote(`a'b $c`))
}
