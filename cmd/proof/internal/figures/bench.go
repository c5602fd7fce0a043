package figures

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandTimeout is how long one command may take.
const commandTimeout = 15 * time.Minute

// A Load runs the subcommand load of proof and returns the numbers of its report; with
// an error too, if the report says that something is wrong.
type Load func(ctx context.Context, args []string, report io.Writer) (map[string]float64, error)

// A bench runs the commands.
type bench struct {
	module   string // the folder of go.mod
	load     Load
	progress io.Writer
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
	var out bytes.Buffer
	if c.isLoad() {
		all := values{}
		for range max(1, c.runs) {
			report, err := b.load(ctx, args[1:], &out)
			if wrong := report["wrong"] > 0; err != nil && (!wrong || ctx.Err() != nil) {
				return nil, fmt.Errorf("%w: %s", err, lastLines(out.String(), 12))
			} else if wrong { // it is a figure of its own how much is wrong
				fmt.Fprintf(b.progress, "  %v: %s\n", err, lastLines(out.String(), 12))
			}
			for unit, x := range report {
				all.add("load", unit, x)
			}
		}
		return all, nil
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	// It ends what it started before it ends itself, if it is asked to.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if c.env != "" {
		cmd.Env = append(os.Environ(), c.env)
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.module, &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %s", err, lastLines(out.String(), 12))
	}
	return parseGoTest(out.String())
}

// lastLines is the end of what a command printed, on one line.
func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(strings.Fields(strings.Join(lines[max(0, len(lines)-n):], " ")), " ")
}
