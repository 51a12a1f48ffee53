package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/gccl/gccl/collective"
	"github.com/spf13/cobra"
)

func envCommand() *cobra.Command {
	help := false
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Show every setting with its value and where that comes from",
		Long: "Prints the settings as this process's environment makes them. A variable that begins with GCCL_ and\n" +
			"that nothing reads is warned about, with the nearest name. Who a rank is (GCCL_RANK …) is not shown:\n" +
			"see docs/launchers.md. The table of -l is in docs/settings.md, too.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			values, wrong := collective.Values(os.LookupEnv)
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprint(w, "SETTING\tVALUE\tSOURCE")
			if help {
				fmt.Fprint(w, "\tDEFAULT\tALSO READ\tTYPE\tMEANING")
			}
			fmt.Fprintln(w)
			for _, v := range values {
				fmt.Fprintf(w, "%s\t%s\t%s", v.Name, v.Value, v.Source)
				if help {
					also := cmp.Or(strings.Join(v.Aliases, ","), "-")
					fmt.Fprintf(w, "\t%s\t%s\t%s\t%s", v.Default, also, v.Type, v.Help)
				}
				fmt.Fprintln(w)
			}
			for _, u := range collective.Unknown(os.Environ()) {
				fmt.Fprintln(cmd.ErrOrStderr(), "gccl: warning:", u)
			}
			return errors.Join(w.Flush(), wrong)
		},
	}
	cmd.Flags().BoolVarP(&help, "long", "l", false, "with default, the other variables that are read, type and meaning")
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version is the module's version, the revision it was built from, and the tool chain.
func version() string {
	name, revision := "devel", ""
	if b, ok := debug.ReadBuildInfo(); ok {
		if b.Main.Version != "" && b.Main.Version != "(devel)" {
			name = b.Main.Version
		}
		for _, s := range b.Settings {
			switch {
			case s.Key == "vcs.revision" && len(s.Value) >= 12:
				revision = " " + s.Value[:12] + revision
			case s.Key == "vcs.modified" && s.Value == "true":
				revision += "+changes"
			}
		}
	}
	return fmt.Sprintf("gccl %s%s %s %s/%s", name, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
