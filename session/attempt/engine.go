// Package attempt runs coding agents on the tasks of the board (seed 004): an attempt is a worktree for each
// repository, an agent that works there, and follow-ups. Every change is on the board before it is
// acknowledged, so any server of the project can continue it.
//
// Each execution of an agent is led by one goroutine of the server that owns it (see execution); an
// executors.Executor handles the agent itself. To add an executor whose agents are not processes of this
// machine, implement the interface in a package of its own and name it in Options.Executors. Workspaces are
// always created on this machine. Tasks and lists are in package board; package merge brings an attempt's
// commits into branches.
//
// The concepts to know:
//
//   - Engine and its Options: serve, which hands out slots; passive engines; Settle and recover
//   - an attempt: its repositories, workspace, worktrees and branch; its place, which is a machine's folder
//   - execution: one process of an agent, its fate and outcome; what its leader records
//   - an Executor, chosen by name and variant; its Work; the Process that it starts
//   - a follow-up, which runs in the conversation of an earlier execution or gets a report of it
//   - a run: Leader, Lead, Agent, one execution per step of a workflow; the limits of providers
//   - reporter: what other machines can read; claims, and removals for other machines
//   - starter, which starts tasks that are ready
//   - Message, logPart: what agents wrote; the spans that an execution's end exports
//   - inspection ("deepwork check")
package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/work"
)

// Options configure an Engine. Zero fields have their default.
type Options struct {
	board.Options

	// Executors has the executors that the config cannot define, by name. All others run command lines on
	// this machine, with this program as the shim.
	Executors map[string]executors.Executor
	// Only and Max apply to stores that several machines share: the names of the executors that this process
	// runs, and how many agents it runs at once. Default: all, and as configured.
	Only []string
	Max  int
	// Work is the loop of the process, in which removals for other machines are done. Default: one of the
	// engine's own.
	Work *work.Loop
	// Leader leads the agents of runs; nil leaves runs to other processes.
	Leader Leader
	// Passive engines start nothing before Serve is called, and take over only what Settle or a stop needs.
	// They are for the command line, and may run while servers do.
	Passive bool
	// Poll is how often the board is checked for changes by other servers; default 500 ms. In a store that
	// several machines share, the board is checked after changes, at most this often, and without a change a
	// sixth as often.
	Poll time.Duration
	// Grace is the time from SIGTERM to SIGKILL when an agent is stopped; default 5 s.
	Grace time.Duration
}

// An Engine is a project's board and the attempts that this process leads. Its methods may be called from any
// goroutine, and by several processes of one project; each returns when its changes are durable. Starting
// agents needs session.RightAgents.
type Engine struct {
	*board.Board
	o       Options
	local   executors.Local
	changes store.Changes

	ctx         context.Context // parent of every goroutine's context; ends with Close
	cancel      context.CancelFunc
	serving     context.Context // for starting new work; ends when Close begins
	halt        context.CancelFunc
	workers     sync.WaitGroup // goroutines that hand out slots, create workspaces and start agents
	background  sync.WaitGroup // every goroutine of the engine
	wake        wait.Signal    // a slot or a waiting execution may be available
	finished    wait.Signal    // this process no longer leads some execution
	wakeStarter wait.Signal    // a task may be ready to start without a call

	ownWork    *work.Loop // if Options.Work is missing
	only       string     // the attempt of the only run that it leads, noRun, or "" for any; set before it serves
	recovered  bool       // of serve: it is finishing what crashes left
	lastGiveUp time.Time  // of serve: when it last looked for machines that are gone

	mu      sync.Mutex            // guards the fields below
	leading map[string]*execution // executions that this server runs, by id
	stats   Stats
}

// Open returns the engine of a project. The first call that needs the board opens or creates it. If the board
// exists, the engine takes over the executions of dead servers at once, in the background. If the board
// cannot be opened, each call fails, but not Open. The caller closes the engine.
func Open(ctx context.Context, o Options) (*Engine, error) {
	if !filepath.IsAbs(o.Root) {
		return nil, errors.New("opening the task board: the project root must be an absolute path")
	}

	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("opening the task board: finding this program, which is the agents' shim: %w", err)
	}

	e := newEngine(o)
	e.local = executors.Local{Runner: runner.Runner{Shim: []string{self, runner.ShimCommand}}, Logs: e.State().Logs()}
	e.ctx, e.cancel = context.WithCancel(context.WithoutCancel(ctx))
	e.serving, e.halt = context.WithCancel(e.ctx)
	if !o.Passive {
		e.workers.Add(1)
		e.background.Go(e.serveReady)
		e.Serve()
		e.background.Go(func() { e.Notify(e.serving) })
	}

	return e, nil
}

// noRun is not the id of any attempt.
const noRun = "none"

// newEngine returns an engine that has not started any goroutines.
func newEngine(o Options) *Engine {
	o.Poll = cmp.Or(max(o.Poll, 0), 500*time.Millisecond)
	o.Grace = cmp.Or(max(o.Grace, 0), 5*time.Second)
	e := &Engine{
		o:           o,
		wake:        wait.NewSignal(),
		finished:    wait.NewSignal(),
		wakeStarter: wait.NewSignal(),
		leading:     make(map[string]*execution),
		stats:       Stats{Ended: make(map[task.AttemptState]uint64)},
	}

	if o.Leader == nil {
		e.only = noRun
	}
	o.Changed, o.Conflicts = e.wakeUp, e.conflicts
	e.Board = board.New(o.Options)
	e.changes = e.Database.Changes()
	return e
}

// Close ends the engine and leaves the agents running: another server, or the next one, takes them over.
// Executions that wait to be started go back to the board. It returns the names of what had not ended before
// ctx did.
func (e *Engine) Close(ctx context.Context) []string {
	e.halt()
	var stuck []string
	if wait.Group(ctx, &e.workers) != nil { // such as a setup command that is being killed
		stuck = append(stuck, "making workspaces")
	}

	stuck = append(stuck, e.leaveRemovals(ctx)...)
	e.cancel()
	if wait.Group(ctx, &e.background) != nil {
		stuck = append(stuck, "waiting for agents")
	}

	// Close the board last: until then no other server takes over this server's executions.
	if err := e.Board.Close(ctx); err != nil {
		e.Log.Error("closing the task board", "error", err)
	}
	return stuck
}

// MayStart returns an error if a caller may not start agents.
func (e *Engine) MayStart(who session.Caller) error {
	switch {
	case who.Has(session.RightAgents):
		return nil
	case e.o.Passive:
		return session.NotNow(codes.RightNeeded,
			"An agent that works on an attempt cannot start agents. Create a task for the work and mention it in "+
				"the final message: a person can start an attempt on it.").With("right", "agents")
	}
	return session.NotNow(codes.RightNeeded,
		"Starting agents needs the right agents, which %s does not have.", who.Identity).
		Ask("make a token with it: `deepwork token new %s --rights agents`", who.Identity).With("right", "agents")
}

// Worktrees returns the keeper of an attempt's worktrees.
func (e *Engine) Worktrees(a *task.Attempt) *worktree.Keeper { return e.keeper(worktreesOf(a)) }

// MayMerge returns an error if a caller may not merge or push attempts.
func (e *Engine) MayMerge(who session.Caller) error {
	switch {
	case e.o.Attempt != "" || e.o.Passive && !who.Has(session.RightMerge):
		return session.NotNow(codes.RightNeeded,
			"An agent that works on an attempt cannot merge or push attempts. Say in the final message what is to "+
				"be done: a person can do it.").With("right", "merge")
	case !who.Has(session.RightMerge):
		return session.NotNow(codes.RightNeeded,
			"Merging and pushing needs the right merge, which %s does not have.", who.Identity).
			Ask("do it, or make a token with that right: `deepwork token new %s --rights merge`", who.Identity).
			With("right", "merge")
	}

	return nil
}

// keeper returns the keeper of the worktrees below a folder.
func (e *Engine) keeper(dir string) *worktree.Keeper {
	board := "" // of the state folder
	if e.Shared != nil {
		board = e.Shared.Project + " in " + e.Database.Where()
	}
	return worktree.New(worktree.Options{
		Dir:      dir,
		Journal:  e.journalOf(dir),
		Project:  e.State().Root,
		Board:    board,
		Dropping: e.dropState,
		Logger:   e.Log,
	})
}

// Stats are counts of this server since the engine was opened.
type Stats struct {
	Running int                          // executions that this server leads now, starting ones included
	Started uint64                       // agents that were started
	Ended   map[task.AttemptState]uint64 // executions by final state, as recorded by this server
	Limited uint64                       // agents of runs that ended at a limit of their provider
	Spent   task.Spent                   // what agents and reviewers that have ended used
}

// Stats returns the counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	s.Running, s.Ended = len(e.leading), maps.Clone(s.Ended)
	return s
}

// count changes the counts under the lock.
func (e *Engine) count(change func(*Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.stats)
}

// wakeUp makes serve check the slots, and serveReady the tasks. It does not block.
func (e *Engine) wakeUp() {
	e.wake.Wake()
	e.wakeStarter.Wake()
}

// GitFailed returns the error for a failure of git or of the disk, which usually can be fixed and is not an
// error in the arguments.
func GitFailed(what string, err error) error {
	return session.NotNow(codes.GitFailed, "%s: %s. Nothing was changed; correct that and try again.", what,
		strings.TrimSuffix(err.Error(), ".")).Because(err)
}

// AgentRuns returns the error for a call that is possible only once an agent has ended.
func AgentRuns(id string) *session.Error {
	return session.NotNow(codes.AttemptRunning,
		"The agent of attempt %s is waiting or running. Try again when it has ended.", id).
		Next("stop it", "stop_attempt", "attempt_id", id).With("attempt_id", id)
}
