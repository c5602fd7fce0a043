// Package figures prints all figures that the project promises, each beside what it
// is compared with, from one run:
//
//	go run ./cmd/proof figures           # about ten minutes
//	go run ./cmd/proof figures -only load
//	go run ./cmd/proof figures -write    # renews transport/BENCHMARKS.md
//
// It runs the benchmarks, tests and loads that there are, one after the other, and
// reads what they print. It exits 1 where one of them fails, or finds something
// wrong; a bound that is not met is told in the table, and is no failure, since a
// machine that is busy misses some.
package figures

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// document is the file that keeps the last run, relative to the module.
var document = filepath.Join("transport", "BENCHMARKS.md")

// Run is the command: the table goes to stdout, what is being done to stderr. It
// blocks until every command has ended, which an end of ctx makes soon. load runs loads.
func Run(ctx context.Context, args []string, load Load, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("figures", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("only", "", "measure only the figures whose row matches this `regexp`")
	write := flags.Bool("write", false, "renew "+filepath.ToSlash(document)+" with the table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("it takes no arguments, found %q", flags.Arg(0))
	}
	if *write && *only != "" {
		return errors.New("-write keeps a whole run: leave out -only")
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var wanted []figure
	for _, f := range figures {
		if pattern.MatchString(fmt.Sprintf("%s: %s: %s", f.part, f.what, f.run)) {
			wanted = append(wanted, f)
		}
	}
	if len(wanted) == 0 {
		return fmt.Errorf("no figure matches -only %s", *only)
	}

	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("finding the module (run this in the checkout): %w", err)
	}
	b := &bench{module: strings.TrimSpace(string(module)), load: load, progress: stderr}
	began := time.Now()
	rows := b.measure(ctx, wanted)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the run was cut short: %w", context.Cause(ctx))
	}
	text := table(rows, thisMachine(began, time.Since(began)))
	if _, err := io.WriteString(stdout, text); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	if *write {
		if err := os.WriteFile(filepath.Join(b.module, document), []byte(preamble+text), 0o644); err != nil {
			return fmt.Errorf("keeping the table: %w", err)
		}
	}
	return verdict(rows)
}

// verdict is the error of a run in which something could not be measured, or was
// wrong; a bound that is missed is none.
func verdict(rows []row) error {
	failed, wrong := 0, 0
	for _, r := range rows {
		switch {
		case r.err != nil:
			failed++
		case r.must && !r.ok:
			wrong++
		}
	}
	if failed+wrong > 0 {
		return fmt.Errorf("of %d figures %d could not be measured, and %d say that something is wrong", len(rows), failed, wrong)
	}
	return nil
}
