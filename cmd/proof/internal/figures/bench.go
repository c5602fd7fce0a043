package figures

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// commandTimeout is how long one command may take.
const commandTimeout = 10 * time.Minute

// A bench runs the commands.
type bench struct {
	module    string // the folder of go.mod
	temp      string // has the built program
	benchtime string // for all benchmarks; "": their own
	progress  io.Writer
}

// openBench finds the module and builds the program. close removes what it made.
func openBench(ctx context.Context, progress io.Writer) (*bench, error) {
	out, err := exec.CommandContext(ctx, goTool, "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the module (run this in the checkout): %w", err)
	}
	b := &bench{module: strings.TrimSpace(string(out)), progress: progress}
	if b.temp, err = os.MkdirTemp("", "deepwork-figures-"); err != nil {
		return nil, fmt.Errorf("making a folder for the program: %w", err)
	}
	fmt.Fprintln(progress, "building proof")
	build := exec.CommandContext(ctx, goTool, "build", "-o", b.program(), "./cmd/proof")
	build.Dir, build.Stdout, build.Stderr = b.module, progress, progress
	if err := build.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("building proof: %w", err), b.close())
	}
	return b, nil
}

func (b *bench) close() error { return os.RemoveAll(b.temp) }

func (b *bench) program() string {
	name := filepath.Join(b.temp, proof)
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	return name
}

// measure runs each command once, in the order of the figures, and gives a row for
// each figure.
func (b *bench) measure(ctx context.Context, wanted []figure) []row {
	type outcome struct {
		values values
		err    error
	}
	done := map[command]outcome{}
	rows := make([]row, 0, len(wanted))
	for _, f := range wanted {
		o, ok := done[f.run]
		if !ok && ctx.Err() == nil {
			began := time.Now()
			fmt.Fprintf(b.progress, "%s\n", f.run)
			o.values, o.err = b.execute(ctx, f.run)
			done[f.run] = o
			fmt.Fprintf(b.progress, "  %.0f s\n", time.Since(began).Seconds())
			if o.err != nil {
				fmt.Fprintf(b.progress, "  it failed: %v\n", o.err)
			}
		}
		rows = append(rows, judge(f, o.values, o.err))
	}
	return rows
}

// execute runs one command and reads what it prints.
func (b *bench) execute(ctx context.Context, c command) (values, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, fmt.Errorf("it took longer than %v", commandTimeout))
	defer cancel()
	args := strings.Fields(c.args)
	program := c.program
	if program == proof {
		program = b.program()
	} else if b.benchtime != "" {
		for i, a := range args {
			if strings.HasPrefix(a, "-benchtime=") {
				args[i] = "-benchtime=" + b.benchtime
			}
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	// It ends what it started before it ends itself, if it is asked to.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if c.env != "" {
		cmd.Env = append(os.Environ(), c.env)
	}
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.module, &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		err = fmt.Errorf("%w: %s", err, lastLines(out.String(), 12))
		if report := parseLoad(out.String()); c.program == proof && ctx.Err() == nil && report["load"]["wrong"] > 0 {
			fmt.Fprintf(b.progress, "  %v\n", err)
			return report, nil // it is a figure of its own how much is wrong
		}
		return nil, err
	}
	if c.program == proof {
		return parseLoad(out.String()), nil
	}
	return parseGoTest(out.String())
}

// lastLines is the end of what a command printed, on one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(strings.Fields(strings.Join(lines[max(0, len(lines)-n):], " ")), " ")
}
