package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/schedule"
	"github.com/spf13/cobra"
)

// byteSize is a flag's number of bytes, which may end in K, M or G.
type byteSize int

func (b *byteSize) Set(s string) error {
	n, err := collective.ParseBytes(s)
	switch {
	case err != nil:
		return err
	case n < 0:
		return errors.New("a size cannot be negative")
	}
	*b = byteSize(n)
	return nil
}

func (b *byteSize) String() string { return sizeText(int(*b)) }

func (b *byteSize) Type() string { return "bytes" }

// byteSizes is a flag's list of such numbers, with commas between.
type byteSizes []int

func (b *byteSizes) Set(s string) error {
	*b = nil
	for _, text := range strings.Split(s, ",") {
		var n byteSize
		if err := n.Set(text); err != nil {
			return err
		}
		*b = append(*b, int(n))
	}
	return nil
}

func (b *byteSizes) String() string {
	var list []string
	for _, n := range *b {
		list = append(list, sizeText(n))
	}
	return strings.Join(list, ",")
}

func (b *byteSizes) Type() string { return "sizes" }

// byteFlag is a flag's size, with what it is where the flag is not given.
func byteFlag(at *int, n int) *byteSize {
	*at = n
	return (*byteSize)(at)
}

// oneOf accepts one argument, and says what it may be where there is none. Whether it is one of them is for the
// command to tell.
func oneOf(names []string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s: need one of %s, not %d arguments", cmd.Name(), strings.Join(names, ", "), len(args))
		}
		return nil
	}
}

// some accepts arguments, but not none of them.
func some(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s: need %s", cmd.Name(), what)
		}
		return nil
	}
}

// collectiveNames are those of schedules' collectives.
func collectiveNames() (names []string) {
	for _, c := range schedule.Collectives() {
		names = append(names, c.String())
	}
	return names
}

// collectiveNamed reads such a name, in upper or lower case.
func collectiveNamed(name string) (schedule.Collective, error) {
	c, err := schedule.ParseCollective(strings.ToLower(name))
	if err != nil {
		return c, fmt.Errorf("%w; there are %s", err, strings.Join(collectiveNames(), ", "))
	}
	return c, nil
}
