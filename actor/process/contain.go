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

// ContainCommand is the first argument of a process that contains another one: this program itself, which Contain
// starts. It is served before the rest of the program is initialized.
const ContainCommand = "contain-process"

func init() {
	if len(os.Args) == 2 && os.Args[1] == ContainCommand {
		os.Exit(contain())
	}
}

// A Contained describes a command for Contain.
type Contained struct {
	Command []string      // as in Spec
	Dir     string        // its working directory, absolute
	Env     []string      `json:"-"` // as in Spec
	Timeout time.Duration // after which it is ended
	Output  int           // the number of bytes that are kept from the end of its output; default DefaultStderrLimit
}

// An Outcome is how a contained command ended.
type Outcome struct {
	Code       int           // its exit code; -1 if it has none
	Signal     string        // that ended it, or ""
	TimedOut   bool          // it was ended after its time limit
	Left       bool          // it left processes behind, which were ended
	Surviving  bool          // something of it does not end, or holds its output open
	NotStarted string        // why it could not be started, or ""
	Missing    bool          // it could not, because there is no such program
	Output     string        // the end of its standard output and standard error, in the order in which they came
	After      time.Duration // how long it ran
}

// Passed reports whether the command ended with exit code 0, in time, and left nothing behind.
func (o *Outcome) Passed() bool {
	return o.NotStarted == "" && o.Code == 0 && o.Signal == "" && !o.TimedOut && !o.Left && !o.Surviving
}

const (
	// settleFor is how long a command that has ended may have children that are about to end.
	settleFor = time.Second
	// containGrace is how long the process that contains a command has to end it.
	containGrace = 10 * time.Second
)

// Contain runs a command under a process of its own that ends everything the command has started: on Linux also
// what has left its group, elsewhere its group. Nothing of it runs when Contain returns, also if ctx ends or
// this process is killed. The error says why the command could not be watched; how it ended is the Outcome.
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
		o.Surviving = false // what held the output open has ended
	}
	o.Code, o.Signal = child.Exit()
	o.After = child.ended.Sub(child.started)
	o.Output = Tail(out.text(), out.limit)
	return o
}

// leaves reports whether something of the command, which has ended, goes on running for a while.
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
