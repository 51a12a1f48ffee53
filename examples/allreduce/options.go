package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gccl/gccl/tensor"
)

// options are the program's flags.
type options struct {
	Ranks    int
	In, Out  string
	Op       tensor.Op
	Provider string
	Timeout  time.Duration
	Steps    int
}

// loopback is the provider between ranks that are goroutines of one process.
const loopback = "loopback"

// maxRanks keeps a slip of the finger from filling the host with processes.
const maxRanks = 256

// parse reads the arguments. What it refuses is wrong for every rank alike, so nothing is started.
func parse(args []string) (*options, error) {
	o := &options{}
	var op string
	f := flag.NewFlagSet("allreduce", flag.ContinueOnError)
	f.IntVar(&o.Ranks, "n", 4, "ranks to start; 0: this process is a rank that another launcher started")
	f.StringVar(&o.In, "in", "", "the ranks' tensors: name of a .npy or .safetensors file with %d for the rank;\nwithout it the ranks train on the images that come with the program")
	f.StringVar(&o.Out, "out", "", "write the result (without -in: the weights) to this .npy or .safetensors file")
	f.StringVar(&op, "op", "", "operation on the tensors of -in: sum, avg, prod, min, max, bitand, bitor, bitxor,\nlogicaland, logicalor, logicalxor (default sum)")
	f.StringVar(&o.Provider, "provider", "auto", "what carries the messages: auto, shm, verbs, tcp; loopback: ranks are goroutines")
	f.DurationVar(&o.Timeout, "timeout", time.Minute, "longest time to connect, and for one collective")
	f.IntVar(&o.Steps, "steps", 20, "training steps without -in")
	f.Usage = func() {}
	var text strings.Builder
	f.SetOutput(&text)
	if err := f.Parse(args); err != nil {
		if err == flag.ErrHelp {
			f.PrintDefaults()
			fmt.Fprintf(os.Stderr, "usage: allreduce [flags]\n%s", &text)
		}
		return nil, err
	}
	return o, o.check(f, op)
}

func (o *options) check(f *flag.FlagSet, op string) (err error) {
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("%q is no flag", f.Arg(0))
	case o.Ranks < 0 || o.Ranks > maxRanks:
		return fmt.Errorf("-n %d: want 1 to %d ranks, or 0 under another launcher", o.Ranks, maxRanks)
	case o.Timeout <= 0:
		return fmt.Errorf("-timeout %v: want a positive time", o.Timeout)
	case o.Steps < 1:
		return fmt.Errorf("-steps %d: want at least 1", o.Steps)
	case o.In == "" && given["op"]:
		return fmt.Errorf("-op %s: the gradients are summed; -op is for the tensors of -in", op)
	case o.In != "" && given["steps"]:
		return fmt.Errorf("-steps is for training, without -in")
	case !slices.Contains([]string{"auto", "shm", "verbs", "tcp", loopback}, o.Provider):
		return fmt.Errorf("-provider %s: want auto, shm, verbs, tcp or loopback", o.Provider)
	case o.Provider == loopback && o.Ranks == 0:
		return fmt.Errorf("-provider loopback: ranks that are goroutines have no other launcher; use -n")
	}
	o.Op = tensor.Sum
	if op != "" {
		if o.Op, err = tensor.ParseOp(op); err != nil {
			return fmt.Errorf("-op %s: there are %s", op, opNames())
		}
	}
	if o.In != "" {
		if len(rankMark.FindAllString(o.In, -1)) != 1 {
			return fmt.Errorf("-in %s: want one %%d, which stands for the rank", o.In)
		}
		if err := fileType("-in", o.In); err != nil {
			return err
		}
	}
	if o.Out != "" {
		return fileType("-out", o.Out)
	}
	return nil
}

func opNames() string {
	var names []string
	for _, op := range tensor.Ops() {
		names = append(names, op.Name())
	}
	return strings.Join(names, ", ")
}

func fileType(flag, name string) error {
	switch filepath.Ext(name) {
	case ".npy", ".safetensors":
		return nil
	}
	return fmt.Errorf("%s %s: want a name that ends in .npy or .safetensors", flag, name)
}

// rankMark is where a rank's number goes: %d, or %03d with leading zeros.
var rankMark = regexp.MustCompile(`%(0[1-9])?d`)

// file is the name of a rank's input file.
func (o *options) file(rank int) string {
	return rankMark.ReplaceAllStringFunc(o.In, func(mark string) string {
		if mark == "%d" {
			return strconv.Itoa(rank)
		}
		return fmt.Sprintf("%0*d", int(mark[2]-'0'), rank)
	})
}
