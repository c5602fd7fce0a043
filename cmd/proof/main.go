// Command proof tests the deepwork program from outside: it puts many real agents on
// its servers, simulates what goes wrong, and measures every figure that is promised.
// It builds the program from the checkout that it is run in:
//
//	go run ./cmd/proof load -edit -servers 2
//	go run ./cmd/proof load -alternate -calls 10000
//	go run ./cmd/proof sim -machines 3 -operations 10000
//	go run ./cmd/proof items -items 200 -kills 1000
//	go run ./cmd/proof tasks -kills 20 -kind review
//	go run ./cmd/proof figures -only 'task board'
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"deepwork/cmd/proof/longwork"
	"deepwork/session/state/statetest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(runAlone(ctx))
}

// runAlone runs the command line with its own state folder and user's config, unless a parent process has set these up.
func runAlone(ctx context.Context) int {
	if len(os.Args) > 1 && (os.Args[1] == "load" || os.Args[1] == "figures") {
		dir, err := os.MkdirTemp("", "deepwork-proof-")
		if err == nil {
			defer os.RemoveAll(dir)
			err = statetest.Prepare(dir, os.TempDir())
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "proof: %v\n", err)
			return 1
		}
	}
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// run runs a command line and returns the exit code: 0, 1 if something is wrong, or 2 for an
// invalid command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	commands := map[string]func() error{
		"load":     func() error { return runLoad(ctx, args[1:], stdout, stderr) },
		"figures":  func() error { return runFigures(ctx, args[1:], stdout, stderr) },
		"sim":      func() error { return runSim(ctx, args[1:], stdout, stderr) },
		"items":    func() error { return runItems(ctx, args[1:], stdout, stderr) },
		"tasks":    func() error { return runTasks(ctx, args[1:], stdout, stderr) },
		"porter":   func() error { return runPorter(ctx, args[1:]) },
		"echo":     func() error { return serveEcho(ctx) },
		"source":   func() error { return serveSource(ctx, args[1:]) },
		"step":     func() error { return runStepper(ctx, args[1:]) },
		"reviewer": func() error { return runReviewer(ctx, args[1:], os.Stdin, stdout) },
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprintln(stderr, "usage: proof load|sim|items|tasks|figures [FLAG...]; -h after one of them lists "+
			"its flags")
		return 2
	}
	err := commands[args[0]]()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2 // the flag package has reported it
	case !errors.Is(err, errWrong): // otherwise the report says it
		fmt.Fprintf(stderr, "proof: %v\n", err)
	}

	return 1
}

// errUsage is the error of an invalid command line. It was reported.
var errUsage = errors.New("wrong usage")

// parse parses flags; check, if not nil, validates them.
func parse(flags *flag.FlagSet, args []string, stderr io.Writer, check func() error) error {
	flags.SetOutput(stderr)
	if err := flags.Parse(args); err != nil {
		return errUsage
	}

	var err error
	if flags.NArg() > 0 {
		err = fmt.Errorf("%s takes no arguments, found %q", flags.Name(), flags.Arg(0))
	} else if check != nil {
		err = check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "proof: %v\n", err)
		return errUsage
	}

	return nil
}

// buildIn is the folder in which each program is built once. Tests set it; "" means each world's own folder.
var buildIn string

var built struct {
	mu       sync.Mutex
	programs map[string]bool // the paths of those that were built into buildIn
}

// runTasks is the subcommand tasks.
func runTasks(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, kind := longwork.Options{}, ""
	flags := flag.NewFlagSet("tasks", flag.ContinueOnError)
	flags.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()%1e9), "makes the choices")
	flags.StringVar(&kind, "kind", "all", "of calls: "+strings.Join(longwork.Kinds, ", ")+" or all")
	flags.StringVar(&o.Client, "client", "ts",
		"ts, written with the official TypeScript SDK, or claude, the newest Claude Code")
	flags.StringVar(&o.Over, "over", "http", "transport: http or stdio")
	flags.StringVar(&o.Era, "era", longwork.Eras[0],
		"version of the protocol, over stdio: "+strings.Join(longwork.Eras, " or "))
	flags.IntVar(&o.Cases, "kills", 20, "calls of each kind, in each of which the server is killed at a random moment")
	flags.DurationVar(&o.Takes, "takes", 10*time.Second, "the work of a call")
	flags.DurationVar(&o.Long, "long", 0,
		"the work of the first call of each kind, in which the server is killed three times; 0 means --takes")
	flags.IntVar(&o.AtOnce, "at-once", 4, "calls at the same time")
	flags.StringVar(&o.Packages, "packages", "", "folder with the client's node_modules; by default they are installed")
	err := parse(flags, args, stderr, func() error {
		o.Kinds = []string{kind}
		if kind == "all" {
			o.Kinds = longwork.Kinds
		}
		return o.Check()
	})
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "deepwork-tasks-")
	if err != nil {
		return err
	}
	o.Dir = dir
	if o.Self, err = os.Executable(); err == nil {
		o.Program, err = build(ctx, dir)
	}

	wrong := 0
	if err == nil {
		wrong, err = longwork.Prove(ctx, o, stdout)
	}
	switch {
	case err != nil:
		return errors.Join(err, os.RemoveAll(dir))
	case wrong > 0:
		fmt.Fprintf(stdout, "seed %d: %d of %d calls went wrong\n", o.Seed, wrong, o.Cases*len(o.Kinds))
		return errWrong
	}
	fmt.Fprintf(stdout, "all is well: seed %d: %d calls had one result each, and nothing was done twice\n", o.Seed,
		o.Cases*len(o.Kinds))
	return os.RemoveAll(dir)
}

// build builds deepwork from the module of the working directory into a folder, and returns its
// path.
func build(ctx context.Context, dir string, options ...string) (string, error) {
	program := filepath.Join(cmp.Or(buildIn, dir), strings.Join(options, ""), "deepwork")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}

	built.mu.Lock()
	defer built.mu.Unlock()
	if built.programs[program] {
		return program, nil
	}

	cmd := exec.CommandContext(ctx, "go",
		slices.Concat([]string{"build", "-o", program}, options, []string{"deepwork/cmd/deepwork"})...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building deepwork (run this in the checkout): %w\n%s", err, said)
	}

	if buildIn != "" {
		if built.programs == nil {
			built.programs = map[string]bool{}
		}
		built.programs[program] = true
	}
	return program, nil
}
