package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gccl/gccl/internal/recorder"
	"github.com/spf13/cobra"
)

// whyCommand reads flight records.
func whyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "why FILES|DIR...",
		Short: "Say from the ranks' flight records who waits for whom, and who is to blame",
		Long: `Why merges the flight records that the ranks of a job left and says who waits for whom, which rank is
late or absent, and which ranks disagree about a call.

Ranks leave flight records in the directory GCCL_DUMP_DIR when a call fails and, with
GCCL_DUMP_SIGNAL=1, at SIGUSR1; a program gets its own from Comm.Dump.`,
		Args: some("files of flight records, or the directory that has them (GCCL_DUMP_DIR)"),
		RunE: func(cmd *cobra.Command, args []string) error { return why(cmd.OutOrStdout(), cmd.ErrOrStderr(), args) },
	}
}

// maxDumpBytes bounds a file that is read.
const maxDumpBytes = 64 << 20

func why(out, warn io.Writer, args []string) error {
	var files []string
	for _, a := range args {
		if st, err := os.Stat(a); err != nil {
			return err
		} else if st.IsDir() {
			found, err := filepath.Glob(filepath.Join(a, "gccl-*-rank*.json"))
			if err != nil {
				return err
			}
			files = append(files, found...)
			continue
		}
		files = append(files, a)
	}
	var dumps []*recorder.Dump
	for _, f := range files {
		d, err := readDump(f)
		if err != nil {
			fmt.Fprintf(warn, "%s: %v\n", f, err)
			continue
		}
		dumps = append(dumps, d)
	}
	if len(dumps) == 0 {
		return fmt.Errorf("no flight records in %s: ranks leave them when a call fails and GCCL_DUMP_DIR is set", strings.Join(args, ", "))
	}
	for i, r := range recorder.Explain(dumps) {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "communicator %s of %d ranks\n", r.Epoch, r.Size)
		for _, f := range r.Findings {
			fmt.Fprintln(out, f)
		}
		for _, l := range r.Ranks {
			fmt.Fprintln(out, " ", l)
		}
	}
	return nil
}

func readDump(name string) (*recorder.Dump, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDumpBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxDumpBytes {
		return nil, fmt.Errorf("longer than %d bytes", maxDumpBytes)
	}
	return recorder.Decode(b)
}
