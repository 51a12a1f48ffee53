package collective

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the pages made from tables")

const (
	settingsPage = "../docs/settings.md"
	sameHelp     = "; the same on all ranks"
)

const settingsHead = `# Settings

All settings of a communicator, for whoever looks one up. Who a rank is, and how it finds the others (` + "`GCCL_RANK`," + `
` + "`GCCL_ROOT`" + ` …), is in [launchers.md](launchers.md); how algorithms are chosen in [tuning.md](tuning.md).

Each is an environment variable, read when a communicator is made from the environment (` + "`collective.Init`," + `
` + "`ConfigFromEnv`" + `), and a field of ` + "`collective.Config`" + `, whose comment says more. ` + "`gccl env -l`" + ` shows this table with the values that
hold in your environment, and where they come from.

- A variable that is set and empty counts as not set.
- *Also read*: the variables of other libraries that count where the first is not set. A value of theirs that is not
  understood is left out, with a warning; one that names interfaces or devices which this host does not have is an error.
- *Alike*: the value must be the same on all ranks. A rank with another value fails to start, on every rank, with the
  variable's name and both values. Others may differ from rank to rank.
- Bytes and counts may end in K, M or G (of 1024). Durations are "90s", "10m" or a number of seconds.
- A ` + "`GCCL_`" + ` variable that is no setting is warned about.

| setting | also read | type | default | alike | meaning |
|---|---|---|---|---|---|
`

// docs/settings.md is the table of settings; go test ./collective -run SettingsPage -update writes it.
func TestSettingsPage(t *testing.T) {
	var page strings.Builder
	page.WriteString(settingsHead)
	alike := agreed(&Config{}, &tuning{})
	code := func(names []string) string {
		if len(names) == 0 {
			return ""
		}
		return "`" + strings.Join(names, "`, `") + "`"
	}
	for _, s := range Settings() {
		_, same := alike[s.Name]
		yes := ""
		if same {
			yes = "yes"
		}
		require.Equal(t, same, strings.HasSuffix(s.Help, " on all ranks"), "%s: what the help text says, and what ranks must agree on", s.Name)
		help := strings.ReplaceAll(strings.TrimSuffix(s.Help, sameHelp), "|", `\|`)
		fmt.Fprintf(&page, "| `%s` | %s | %s | %s | %s | %s |\n", s.Name, code(s.Aliases), s.Type, s.Default, yes, help)
		delete(alike, s.Name)
	}
	delete(alike, "algorithms") // of the build
	require.Empty(t, alike, "agreed, but no setting")
	if *update {
		require.NoError(t, os.WriteFile(settingsPage, []byte(page.String()), 0o644))
	}
	have, err := os.ReadFile(settingsPage)
	require.NoError(t, err)
	require.Equal(t, page.String(), string(have), "out of date: go test ./collective -run SettingsPage -update")
}
