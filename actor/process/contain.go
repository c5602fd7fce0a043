package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// ContainCommand is the first argument of a process that contains another one: this program itself, started
// by Contain. The process runs before the rest of the program is initialized.
const ContainCommand = "contain-process"

func init() {
	if len(os.Args) == 2 && os.Args[1] == ContainCommand {
		os.Exit(contain())
	}
}

// A Contained describes a command for Contain.
type Contained struct {
	Command []string      // see Spec
	Dir     string        // working directory, absolute
	Env     []string      `json:"-"` // see Spec
	Timeout time.Duration // the command is ended after this time
	Output  int           // bytes to keep from the end of its output; default DefaultStderrLimit
}

// An Outcome says how a contained command ended.
type Outcome struct {
	Code       int           // exit code; -1 means none
	Signal     string        // that ended it, or ""
	TimedOut   bool          // it was ended at its time limit
	Left       bool          // it left processes behind, which were ended
	Surviving  bool          // some of its processes do not end, or hold its output open
	NotStarted string        // why it could not be started, or ""
	Missing    bool          // it was not started because the program does not exist
	Output     string        // the end of its standard output and standard error, in order of arrival
	After      time.Duration // how long it ran
}

// Passed reports whether the command ended with exit code 0, in time, and left nothing behind.
func (o *Outcome) Passed() bool {
	return o.NotStarted == "" && o.Code == 0 && o.Signal == "" && !o.TimedOut && !o.Left && !o.Surviving
}

const (
	// settleFor is how long children of a command that has ended may take to end.
	settleFor = time.Second
	// containGrace is how long the process that contains a command may take to end it.
	containGrace = 10 * time.Second
)

// Contain runs a command under a process that ends everything the command has started: on Linux even what has
// left its group, elsewhere its group. When Contain returns, nothing of the command runs, even if ctx has
// ended or this process was killed. The error says why the command could not be watched; the Outcome says how
// it ended.
func Contain(ctx context.Context, c Contained) (Outcome, error) {
	self, err := os.Executable()
	if err != nil {
		return Outcome{}, fmt.Errorf("finding this program: %w", err)
	}

	spec, err := json.Marshal(c)
	if err != nil {
		return Outcome{}, err
	}
	r, err := Run(ctx, Spec{
		Command: []string{self, ContainCommand}, Env: c.Env, Stdin: spec,
		StdoutLimit: 64<<10 + 8*cmp.Or(c.Output, DefaultStderrLimit), Grace: containGrace, Tidy: true,
	})
	if err != nil {
		return Outcome{}, err
	}

	var o Outcome
	if err := json.Unmarshal(r.Stdout, &o); err != nil {
		return o, fmt.Errorf("reading how %q ended: %w", c.Command[0], err)
	}
	return o, nil
}

// contain runs the command that its input describes, and prints the Outcome.
func contain() int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	var c Contained
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil || len(c.Command) == 0 {
		fmt.Fprintln(os.Stderr, "this command is for the program itself, and its input describes no command")
		return 2
	}

	o := c.run(stop)
	if json.NewEncoder(os.Stdout).Encode(&o) != nil {
		return 1
	}

	return 0
}

func (c *Contained) run(stop <-chan os.Signal) (o Outcome) {
	out := &tail{limit: cmp.Or(c.Output, DefaultStderrLimit)}
	// On Windows, Descendants would let members leave the job object.
	spec := Spec{
		Command:     c.Command,
		Dir:         c.Dir,
		Descendants: runtime.GOOS == "linux",
		detachedToo: true,
		oneOutput:   true,
	}
	child, err := Spawn(spec, out, out)
	if err != nil {
		e, _ := errors.AsType[*Error](err)
		return Outcome{Code: -1, NotStarted: fmt.Sprint(e.Err), Missing: e.Kind == NotFound}
	}

	limit := time.NewTimer(c.Timeout)
	defer limit.Stop()
	select {
	case <-child.Exited():
		o.Left = child.leaves()
	case <-limit.C:
		o.TimedOut = true
		child.stop(DefaultGrace)
	case <-stop:
	}
	o.Surviving = child.Close()
	if o.Left {
		o.Surviving = false // whatever held the output open has ended
	}
	o.Code, o.Signal = child.Exit()
	o.After = child.ended.Sub(child.started)
	o.Output = Tail(out.text(), out.limit)
	return o
}

// leaves reports whether some processes of an ended command keep running for a while.
func (c *Child) leaves() bool {
	ctx, cancel := context.WithTimeout(context.Background(), settleFor)
	defer cancel()
	for pause := 5 * time.Millisecond; c.Alive() || c.group.strays(); {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return true
		}
	}
	return false
}
