// Command asm generates the amd64 reductions of package kernel: for each element size or type one
// assembly file with its Go declarations, and the switch that picks a function. Run go generate in
// package kernel.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// c builds the file at hand.
var c *build.Context

// constraint of every generated file: under the race detector plain Go lets it see the accesses.
const constraint = "!purego && !race"

func main() {
	log.SetFlags(0)
	log.SetPrefix("asm: ")
	dir := flag.String("dir", ".", "directory of package kernel")
	flag.Parse()

	all := families()
	for len(all) > 0 {
		name := all[0].file
		c = build.NewContext()
		c.ConstraintExpr("!purego,!race") // constraint, as avo spells it
		for len(all) > 0 && all[0].file == name {
			for _, op := range all[0].ops {
				all[0].generate(op)
			}
			all = all[1:]
		}
		write(filepath.Join(*dir, name+"_amd64"))
	}
	must(os.WriteFile(filepath.Join(*dir, "dispatch_amd64.go"), dispatch(families()), 0o644))
}

// write compiles c and writes the assembly and its declarations; the printers close the files.
func write(path string) {
	assembly, err := os.Create(path + ".s")
	must(err)
	stubs, err := os.Create(path + ".go")
	must(err)
	cfg := printer.Config{Name: "go generate", Argv: nil, Pkg: "kernel"}
	status := build.Main(&build.Config{
		ErrOut: os.Stderr,
		Passes: []pass.Interface{
			pass.Compile,
			&pass.Output{Writer: assembly, Printer: printer.NewGoAsm(cfg)},
			&pass.Output{Writer: stubs, Printer: printer.NewStubs(cfg)},
		},
	}, c)
	if status != 0 {
		os.Exit(status)
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
