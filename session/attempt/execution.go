package attempt

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"deepwork/actor/telemetry"
	"deepwork/actor/wait"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/executors"
	"deepwork/session/attempt/limit"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/transcript"
	"deepwork/session/board"
	"deepwork/session/store"
	"deepwork/session/why"
)

// boardPatience limits how long one step waits for a board that another process has locked.
const boardPatience = 20 * time.Second

// An execution is one process of an agent, or of a run's leader, while this server leads it. One goroutine
// leads it from start to end. All of its state is also on the board or in the executor, so any server can
// start leading it at any time.
type execution struct {
	engine *Engine
	row    task.Execution
	ctx    context.Context // ends when this server no longer leads it

	interrupted atomic.Bool // stop should interrupt the run, so that it can be resumed

	lastFailure lastLogged // of lead
	// why it is unknown whether the agent runs, or why it cannot be stopped; nil means neither
	stateUnknown atomic.Pointer[string]

	stopping context.Context // ends with ctx or stop
	stop     context.CancelFunc
	making   context.Context // for creating the workspace; ends with stopping or when Close begins
}

// stopped reports whether the execution was stopped.
func (r *execution) stopped() bool { return r.stopping.Err() != nil && r.ctx.Err() == nil }

// lead starts to lead an execution of this server, unless the server already does.
func (e *Engine) lead(x task.Execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading[x.ID] != nil {
		return
	}

	r := &execution{engine: e, row: x}
	var cancel, stopMaking context.CancelFunc
	r.ctx, cancel = context.WithCancel(e.ctx)
	r.stopping, r.stop = context.WithCancel(r.ctx)
	if x.StopAsked != nil { // asked of the server that led it before
		r.stop()
	}
	r.making, stopMaking = context.WithCancel(r.stopping)
	untie := context.AfterFunc(e.serving, stopMaking)
	e.leading[x.ID] = r

	e.workers.Add(1)
	e.background.Go(func() {
		defer func() {
			if fault := recover(); fault != nil {
				e.Log.Error("an attempt cannot be handled; trying again", "attempt", x.AttemptID,
					"error", fmt.Sprint(fault), "trace", string(debug.Stack()))
				wait.For(e.serving, 4*e.o.Poll)
			}

			untie()
			cancel()
			e.mu.Lock()
			delete(e.leading, x.ID)
			e.mu.Unlock()
			e.wakeUp()
			e.finished.Wake()
		}()

		r.lead()
	})
}

func (r *execution) lead() {
	begun := sync.OnceFunc(r.engine.workers.Done)
	defer begun()
	if r.row.Lead {
		end := r.leadRun()
		if end.fate.recorded() && !r.endAgentsOfRun() {
			return
		}
		r.finish(end)
		return
	}
	proc, end := r.launch()
	if end != nil && end.Error != nil {
		r.note(*end.Error)
	}
	saved := r.follow()
	defer saved()
	if proc != nil {
		end = r.waitFor(proc, begun)
	}
	if end.fate.recorded() {
		if proc != nil && proc.Contained() != "" { // the worktrees may have private git folders
			r.takeCommits()
		}
		saved() // before the end is on the board: after that nobody reads any more
	}
	r.finish(end)
}

// start starts the agent of the execution. It returns its process, or the outcome if it could not be started.
func (r *execution) start(agent executors.Executor, w executors.Work) (executors.Process, *outcome) {
	// Not with making: whether the agent runs must be known, and is quick to find out.
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()

	proc, err := agent.Start(ctx, w)
	if err == nil {
		return proc, nil
	}
	if proc, end := r.find(); proc != nil || end != nil {
		return proc, end
	}
	if _, ok := errors.AsType[*session.Error](err); ok {
		return nil, r.couldNot("starting the agent", err)
	}

	return nil, failed("The agent could not be started: %v", err)
}

// waitFor records that the agent runs, calls began, and waits for the agent's end. It ends the agent if the
// execution is stopped. If this server closes first, the agent runs on.
func (r *execution) waitFor(proc executors.Process, began func()) *outcome {
	var watch sync.WaitGroup
	defer watch.Wait()
	ended := make(chan struct{}) // closed when the process has ended
	defer close(ended)
	watch.Go(func() {
		select {
		case <-r.stopping.Done():
			r.end(proc)
		case <-ended:
		}
	})

	if at := proc.StartedAt(); !at.IsZero() {
		err := r.record(func(ctx context.Context, b store.Board) error {
			return r.recordStart(ctx, b, at, proc.Contained())
		})
		switch {
		case errors.Is(err, task.ErrEnded) || errors.Is(err, task.ErrNotFound):
			r.stop() // another process ended or deleted it
		case err != nil:
			return &outcome{fate: left}
		default:
			began()
		}
	}

	return r.wait(proc)
}

// A fate says what becomes of an execution when this server no longer leads it.
type fate int

const (
	ended   fate = iota // its agent ended, or could not be run
	stopped             // it was stopped before its agent ran
	waits               // its agent never ran, and the execution waits again
	left                // another server leads it, the next one will, or it is no longer on the board
)

// recorded reports whether the board records the end of the execution.
func (f fate) recorded() bool { return f == ended || f == stopped }

// An outcome says how an execution ended, as recorded on the board.
type outcome struct {
	fate fate
	task.Ending
	usage *transcript.Usage // what its agent reported
	limit string            // the message about a limit of its provider that ended it, or ""
	// when the follow-up was queued that its end drops, as its reason says already; zero means that it says nothing
	dropped time.Time
}

// notRun is the outcome of an execution whose agent was not started, because its server is closing or the
// execution was stopped.
func (r *execution) notRun() *outcome {
	if r.stopped() {
		return &outcome{fate: stopped, Ending: task.Ending{State: task.Stopped}}
	}
	return &outcome{fate: waits}
}

// finish records on the board what becomes of the execution. Worktrees that were begun stay only if the attempt
// waits: then it stays at this place, which continues them.
func (r *execution) finish(end *outcome) {
	switch end.fate {
	case left:
		return
	case ended:
		r.push()
	}
	if end.fate.recorded() {
		r.reportDiff()
	}

	begun, released := false, true
	err := r.record(func(ctx context.Context, b store.Board) (err error) {
		if begun, err = r.begun(ctx, b); err != nil {
			return err
		}
		if end.fate == waits {
			released, err = b.Release(ctx, r.row.ID, r.engine.Members.ID(), begun)
			return err
		}
		return r.recordEnd(ctx, b, end)
	})
	if err == nil && !released { // a run that was taken over: this server will try again
		wait.For(r.engine.serving, 4*r.engine.o.Poll)
	}
	if begun {
		r.engine.removeUnused(r.engine.serving)
	}
}

// begun reports whether worktrees of the attempt were made here, or partly made, and the board does not know it.
func (r *execution) begun(ctx context.Context, b store.Board) (bool, error) {
	a, err := b.Attempt(ctx, r.row.AttemptID)
	if err != nil || a.Made() || a.Workspace == "" {
		return false, err
	}
	return r.engine.Worktrees(a).Begun(nameOf(a)), nil
}

// failed is the outcome if an agent could not be run.
func failed(format string, args ...any) *outcome {
	return &outcome{Ending: task.Ending{State: task.Failed, Error: new(fmt.Sprintf(format, args...))}}
}

// recordsGone is the outcome of a run whose records were deleted.
func recordsGone() *outcome {
	return &outcome{Ending: task.Ending{State: task.Interrupted,
		Error: new("The records of the agent's run are gone, so it is not known how it ended.")}}
}

// outcomeOf returns the outcome of an exit: an agent has completed only if it ended on its own with exit code
// 0.
func outcomeOf(x runner.Exit) *outcome {
	o := &outcome{
		Ending: task.Ending{FinalMessage: board.OrNull(x.FinalMessage), Conversation: board.OrNull(x.Conversation)},
		usage:  x.Usage,
	}
	if !x.EndedAt.IsZero() {
		o.EndedAt = &x.EndedAt
	}
	switch {
	case x.Stopped && x.NotStarted != "":
		o.State = task.Stopped // before it ran
	case x.NotStarted != "":
		o.State, o.Error = task.Failed, new("The agent could not be started: "+x.NotStarted)
	case x.Stopped:
		o.State, o.ExitCode = task.Stopped, new(x.Code)
	case x.Interrupted:
		o.State = task.Interrupted
		o.Error = new("The agent was cut short: what watched over it was killed, or the machine went down.")
	case x.Code == 0 && x.Signal == "":
		o.State, o.ExitCode = task.Completed, new(x.Code)
		o.limit = limit.Message(x.Failure, "")
	default:
		o.State, o.ExitCode = task.Failed, new(x.Code)
		why := fmt.Sprintf("The agent ended with exit code %d.", x.Code)
		if x.Signal != "" {
			why = "The agent was ended by " + x.Signal + "."
		}
		if x.Stderr != "" {
			why += " Its last lines on stderr:\n" + x.Stderr
		}
		o.Error = &why
		o.limit = limit.Message(x.Failure, x.Stderr)
	}
	return o
}

// limitedUntil returns when the limit that ended an agent is over, as far as its message says so, or nil.
func (o *outcome) limitedUntil() *time.Time {
	if o.limit == "" {
		return nil
	}
	if until, said := limit.Ends(o.limit, o.EndedAt.Local()); said {
		return &until
	}
	return o.EndedAt // at the earliest
}

// record writes to the board. It retries while the board cannot be written, since nothing about a run may be
// lost. The error is that of f if the execution has ended or is gone, or ctx's.
func (r *execution) record(f func(context.Context, store.Board) error) error {
	once := func() error {
		ctx, cancel := context.WithTimeout(r.ctx, boardPatience)
		defer cancel()
		b, err := r.engine.Store(ctx)
		if err != nil {
			return err
		}
		return f(ctx, b)
	}

	logged := false
	for pause := (wait.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}); ; {
		err := once()
		if err == nil || errors.Is(err, task.ErrEnded) || errors.Is(err, task.ErrNotFound) {
			return err
		}

		if r.ctx.Err() == nil && !logged {
			logged = true
			r.engine.Log.Error("the outcome of an attempt cannot be recorded on the board; trying again until it can",
				"attempt", r.row.AttemptID, "execution", r.row.ID, "error", err)
		}

		if err := pause.Wait(r.ctx); err != nil {
			return err
		}
	}
}

func (r *execution) recordStart(ctx context.Context, b store.Board, at time.Time, contained string) error {
	if _, err := b.StartExecution(ctx, r.row.ID, r.row.Executor, contained, at); err != nil {
		return err
	}
	if r.row.StepID == "" {
		r.engine.count(func(s *Stats) { s.Started++ })
	}
	return nil
}

func (r *execution) recordEnd(ctx context.Context, b store.Board, end *outcome) (err error) {
	ending := end.Ending
	if r.row.StepID == "" && ending.State == task.Completed {
		ending.Task = task.InReview
	}
	if err = r.tellDropped(ctx, b, &ending, end.dropped); err != nil {
		return err
	}
	if ending.Usage, err = r.engine.usageOf(ctx, b, r.row.AttemptID, r.row.Executor, end.usage); err != nil {
		return err
	}
	ending.Resolved = r.row.StepID == "" && r.resolved(ctx, b)
	_, ended, err := b.EndExecution(ctx, r.row.ID, ending)
	if err == nil && ended {
		ctx = telemetry.Under(ctx, r.engine.exportEnd(ctx, b, &r.row))
	}
	if err == nil && ended && r.row.StepID == "" {
		r.engine.count(func(s *Stats) { s.Ended[ending.State]++ })
		r.engine.Log.InfoContext(ctx, "attempt ended", "attempt", r.row.AttemptID, "execution", r.row.ID, "state",
			ending.State)
	}
	if ran := end.ExitCode != nil || end.State == task.Interrupted; err == nil && ended && ran && !r.row.Lead {
		r.engine.countUse(ending.Usage, end.limit != "" && r.row.StepID != "")
	}
	return err
}

// resolved reports whether the merge whose conflicts the attempt had is over.
func (r *execution) resolved(ctx context.Context, b store.Board) bool {
	at, err := b.Attempt(ctx, r.row.AttemptID)
	if err != nil || at.Landed != task.LandedConflicts {
		return false
	}
	for _, repo := range at.Repos {
		if v, err := r.engine.repoReply(ctx, at, repo); err != nil || v.Merging {
			return false
		}
	}
	return true
}

// dropped returns the follow-up that an end in this state drops, or nil; what a person has dropped is not told again.
func (r *execution) dropped(ctx context.Context, b store.Board, state task.AttemptState) (*task.Queued, error) {
	if r.row.StepID != "" || state == task.Completed && !r.row.Lead || state == task.Failed {
		return nil, nil
	}

	now, err := b.AttemptDetails(ctx, r.row.AttemptID)
	if err != nil || now.Session == nil || now.Execution.StopAsked != nil {
		return nil, err
	}
	return now.Session.Queued, nil
}

func whyDropped(q *task.Queued) why.Why {
	return why.Why{Kind: why.Dropped, Said: board.Clip(q.Prompt)}
}

// tellDropped adds what was queued to the reason of an end that drops it. told is when what the reason has already was
// queued.
func (r *execution) tellDropped(ctx context.Context, b store.Board, ending *task.Ending, told time.Time) error {
	q, err := r.dropped(ctx, b, ending.State)
	if err != nil || q == nil || q.At.Equal(told) {
		return err
	}
	reason := &ending.Error
	if ending.State == task.Completed {
		reason = &ending.FinalMessage
	}
	*reason = new(strings.TrimSpace(board.OrEmpty(*reason) + " " + whyDropped(q).Sentence()))
	return nil
}

// wait waits for the end of the process. If this server closes first, the agent runs on.
func (r *execution) wait(proc executors.Process) *outcome {
	for {
		exit, err := proc.Wait(r.ctx)
		if err == nil {
			return outcomeOf(exit)
		}
		if wait.For(r.ctx, time.Second) != nil {
			return &outcome{fate: left}
		}

		r.lastFailure.log(r, "cannot tell whether an agent runs; looking again until that is known", err)
		if found, end := r.find(); found == nil && end == nil {
			return recordsGone()
		}
	}
}

// end stops the process, unless the server is closing.
func (r *execution) end(proc executors.Process) {
	for last := lastLogged(""); r.ctx.Err() == nil; {
		_, err := proc.Stop(r.ctx, r.engine.o.Grace)
		if err == nil || wait.For(r.ctx, time.Second) != nil {
			return
		}
		last.log(r, "an agent cannot be stopped; trying again until it can", err)
	}
}

// endAgentsOfRun ends the agents that an earlier leader of the run has left, if this leader ended before
// doing so: once the end is on the board, nobody looks for them. It reports false if this server closes
// first.
func (r *execution) endAgentsOfRun() bool {
	for last := lastLogged(""); ; {
		b, err := r.engine.Store(r.ctx)
		if err == nil {
			l := &Lead{execution: r, records: b, Attempt: &task.Attempt{ID: r.row.AttemptID}}
			err = l.endAgents(r.ctx)
		}

		if err == nil || errors.Is(err, task.ErrNotFound) {
			return r.ctx.Err() == nil
		}
		if wait.For(r.ctx, time.Second) != nil {
			return false
		}
		last.log(r, "the agents of a run cannot be stopped; trying again until they can", err)
	}
}

// lastLogged is the last error that was logged. It belongs to one goroutine.
type lastLogged string

// log logs that a try failed, unless the previous try failed for the same reason.
func (d *lastLogged) log(r *execution, what string, err error) {
	r.stateUnknown.Store(new(err.Error()))
	if why := lastLogged(err.Error()); why != *d {
		*d = why
		r.engine.Log.Error(what, "attempt", r.row.AttemptID, "error", err)
	}
}

// executor returns the executor of its agent or, for a leader, one that keeps the leader's notes.
func (r *execution) executor() executors.Executor {
	if r.row.Lead {
		return r.engine.executor("")
	}
	return r.engine.executor(r.row.Executor)
}

// note writes a message for people to the attempt's log.
func (r *execution) note(text string) {
	if err := r.executor().Note(r.row.LogID, text); err != nil {
		r.engine.Log.Debug("cannot write to an attempt's log", "attempt", r.row.AttemptID, "error", err)
	}
}
