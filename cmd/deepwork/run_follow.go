package main

import (
	"cmp"
	"context"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"deepwork/actor/wait"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/run"
	"deepwork/session/why"
	"deepwork/transport"
)

// A runEvent is one line of deepwork run --json.
type runEvent struct {
	// run_started, step_started, step_ended, step_waiting, run_waiting or run_ended
	Event       string      `json:"event"`
	At          string      `json:"at"` // RFC 3339 in UTC
	RunID       string      `json:"run_id"`
	State       board.State `json:"state"` // of the run, or of the agent
	Workflow    string      `json:"workflow,omitempty"`
	Goal        string      `json:"goal,omitempty"`
	Branch      *string     `json:"branch,omitempty"`
	Workspace   string      `json:"workspace,omitempty"`
	TraceID     string      `json:"trace_id,omitempty"`  // in OpenTelemetry
	TraceURL    string      `json:"trace_url,omitempty"` // by telemetry.trace_url of your own config
	SessionID   *string     `json:"session_id,omitempty"`
	StepID      *string     `json:"step_id,omitempty"`
	ExecutionID string      `json:"execution_id,omitempty"`
	Executor    string      `json:"executor,omitempty"`
	Seconds     *float64    `json:"seconds,omitempty"` // how long the agent ran
	// of the agent or, at the end, of the run; absent if it is unknown
	CostUSD    *float64 `json:"cost_usd,omitempty"`
	Message    *string  `json:"message,omitempty"` // what the agent said last
	Reason     *string  `json:"reason,omitempty"`  // why it failed, waits or ended
	Command    *string  `json:"command,omitempty"` // by which the person that it waits for answers
	unfinished bool     // of an agent that has ended without finishing its step
	contained  string   // under what an agent runs, or ""
	Until      *string  `json:"until,omitempty"` // when a limit of the provider is over
}

// runLines prints what is new of a run. It belongs to one goroutine.
type runLines struct {
	app      *app
	started  map[string]bool // by execution
	ended    map[string]bool
	waiting  map[board.RunWaits]bool // steps that wait, as last said, without pointers
	waits    string                  // why it waits, as last said
	sessions run.Sessions            // nil if they are not read
	progress string                  // the line below what is printed that says how far it is
	lookedAt time.Time               // when that was made
	drawn    int                     // how often it was drawn
}

func newRunLines(a *app) *runLines {
	return &runLines{app: a, started: map[string]bool{}, ended: map[string]bool{}, waiting: map[board.RunWaits]bool{}}
}

// lead leads a run until it ends, unless another process does, and prints its events.
func (a *app) lead(ctx context.Context, engine *attempt.Engine, r *board.RunReply, detach bool) error {
	defer surviveBrokenPipes()() // agents are led even if nobody reads the output
	v := newRunLines(a)
	for _, x := range r.Steps { // from before it was resumed
		v.started[x.ExecutionID], v.ended[x.ExecutionID] = true, x.EndedAt != nil
	}
	if a.json || r.Open {
		v.begin(r)
	}
	if !r.Open { // it was complete already
		v.end(ctx, engine, r)
		return runExit(r)
	}
	if detach {
		if err := a.inBackground(ctx, r.RunID); err != nil {
			return fmt.Errorf("leading the run %s in the background: %w; 'deepwork run resume %[1]s' leads it here",
				board.Short(r.RunID), err)
		}
		if !a.json {
			fmt.Fprintln(a.out,
				a.here(fmt.Sprintf("It continues in the background: 'deepwork run status %s' shows it, 'deepwork run "+
					"stop %[1]s' stops it.", r.RunID[:shortID])))
		}
		return nil
	}

	if !a.json {
		if engine, done, err := a.openEngine(context.WithoutCancel(ctx), true, nil); err == nil { // else less is said
			v.sessions = engine
			defer func() { _ = done() }() // it was only read
		}
	}
	// Closing the terminal interrupts the run, so that no agent continues without a leader.
	defer transport.MeasureBoard(ctx, engine, readBuild().Version)()

	ctx, stop := untilHangup(ctx)
	defer stop()
	finished := engine.ServeOnly(r.RunID)
	looking, asked := ctx, false
	for {
		now, err := getRun(looking, engine, r.RunID, asked)
		switch {
		case ctx.Err() != nil && !asked:
			asked = true
			looking = context.WithoutCancel(ctx)
			if !engine.Interrupt(r.RunID) {
				goesOn := "the run continues in another process. 'deepwork run resume %s' follows it again"
				now, err = engine.GetRun(looking, atTerminal, board.RunArgs{RunID: r.RunID})
				if err == nil && now.State == board.Queued {
					goesOn = "the run waits for a process to lead it: 'deepwork run resume %s', or a server of the " +
						"project"
				}
				fmt.Fprintln(a.err,
					a.here(fmt.Sprintf("deepwork: interrupted; "+goesOn+"; 'deepwork run stop %[1]s' stops it.",
						r.RunID[:shortID])))
				return &exitError{exitInterrupted}
			}
			fmt.Fprintln(a.err, "Interrupted: ending its agents.")
			continue
		case err != nil:
			return err
		}
		v.show(looking, now)
		if !now.Open {
			v.end(looking, engine, now)
			return runExit(now)
		}
		v.draw(looking, engine, now)
		_ = wait.Until(looking, 200*time.Millisecond, finished) // the next look notices that ctx has ended
	}
}

// barWidth is the number of characters between the ends of a bar.
const barWidth = 10

// spinner are the characters that a moving line begins with, in turn.
const spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

// spin returns the n-th character of the spinner.
func spin(n int) string { return string([]rune(spinner)[n%len([]rune(spinner))]) }

// draw shows at a terminal how far a run is, in a moving line below what is printed.
func (v *runLines) draw(ctx context.Context, engine *attempt.Engine, r *board.RunReply) {
	if v.sessions == nil || !v.app.out.Draws() {
		return
	}

	if now := time.Now(); now.Sub(v.lookedAt) >= time.Second {
		view := run.Look(ctx, r, v.sessions, run.LastSaid(ctx, engine, atTerminal, r))
		if v.progress = progressOf(view); v.progress == "" { // its workflow has not begun
			return
		}
		v.lookedAt = now
	}
	v.drawn++
	v.app.out.Draw(spin(v.drawn) + " " + v.progress)
}

// progressOf says how far a run is, which steps run and for how long, and the latest message of the last one.
func progressOf(view *run.View) string {
	done := 0
	all := 0
	running := ""
	last := ""
	view.Tree.Each(func(s *run.Step, _ int) {
		switch all++; s.State {
		case board.Completed:
			done++
		case board.Running:
			running += ", " + s.ID + " " + ranFor(s)
			if note := lastLine(s.Last); note != "" {
				last = ": " + note
			}
		}
	})

	if all == 0 {
		return ""
	}
	filled := barWidth * done / all
	line := fmt.Sprintf("[%s%s] %d of %s", strings.Repeat("#", filled), strings.Repeat(".", barWidth-filled), done,
		count(all, "step"))
	if view.Cost != nil && view.Cost.USD != nil {
		line += fmt.Sprintf(", %.2f USD", *view.Cost.USD)
	}
	return line + running + last
}

// ranFor says how long agents have worked on a step, or "".
func ranFor(s *run.Step) string {
	took := s.Took
	if s.Since != nil {
		took += time.Since(timeIn(*s.Since))
	}
	if took <= 0 {
		return ""
	}
	return took.Round(time.Second).String()
}

// untilHangup returns a context that also ends when the terminal is closed, unless nohup started the process.
func untilHangup(parent context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(parent)
	}
	return signal.NotifyContext(parent, syscall.SIGHUP)
}

// getRun reads a run. It tries again while the board cannot be read, since the process that follows a run also leads
// it. With once, because the process is asked to end, it soon gives up.
func getRun(ctx context.Context, engine *attempt.Engine, id string, once bool) (*board.RunReply, error) {
	if once {
		bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return engine.GetRun(bounded, atTerminal, board.RunArgs{RunID: id})
	}

	for pause := (wait.Backoff{Min: 200 * time.Millisecond, Max: 5 * time.Second}); ; {
		r, err := engine.GetRun(ctx, atTerminal, board.RunArgs{RunID: id})
		if !board.Passing(err) || pause.Wait(ctx) != nil {
			return r, err
		}
	}
}

func (v *runLines) begin(r *board.RunReply) {
	if v.app.json {
		v.event(runEvent{
			Event:     "run_started",
			RunID:     r.RunID,
			State:     r.State,
			Workflow:  r.Workflow,
			Goal:      r.Goal,
			Branch:    r.Branch,
			Workspace: r.Workspace,
			TraceID:   r.Trace.ID,
			TraceURL:  r.Trace.URL,
		})

		return
	}
	v.app.fields("run", board.Short(r.RunID), "workflow", r.Workflow, "branch", optional(r.Branch), "folder",
		r.Workspace, "trace", cmp.Or(r.Trace.URL, r.Trace.ID))
	fmt.Fprintln(v.app.out)
}

// show prints the agents that have started or ended since the last call.
func (v *runLines) show(ctx context.Context, r *board.RunReply) {
	for _, x := range r.Steps {
		if x.StartedAt != nil && !v.started[x.ExecutionID] {
			v.started[x.ExecutionID] = true
			v.step(ctx, r, x, "step_started")
		}

		if x.EndedAt != nil && !v.ended[x.ExecutionID] {
			v.ended[x.ExecutionID] = true
			if x.StartedAt != nil || x.Error != nil {
				v.step(ctx, r, x, "step_ended")
			}
		}
	}

	for _, w := range r.Waits {
		key := w
		// a queued run has those of its last leader
		key.Until, key.Command = nil, nil
		if v.waiting[key] || r.State == board.Queued {
			continue
		}
		v.waiting[key] = true
		if w.Command != nil {
			w.Command = new(v.app.onPath(*w.Command))
		}
		v.event(runEvent{
			Event:     "step_waiting",
			RunID:     r.RunID,
			State:     waitState(w),
			SessionID: &w.SessionID,
			StepID:    &w.StepID,
			Reason:    new(w.Text()),
			Command:   w.Command,
			Until:     w.Until,
		})
	}

	waits := ""
	if r.State.Open() && (r.State != board.Running ||
		slices.ContainsFunc(r.Steps, func(x board.RunStep) bool { return x.State == board.Queued })) {
		waits = optional(r.Reason)
	}
	said := waits == v.waits || !v.app.json && len(r.Waits) > 0 // of each step
	v.waits = waits
	if waits != "" && !said {
		v.event(runEvent{Event: "run_waiting", RunID: r.RunID, State: r.State, Reason: r.Reason})
	}
}

func (v *runLines) step(ctx context.Context, r *board.RunReply, x board.RunStep, what string) {
	e := runEvent{
		Event:       what,
		RunID:       r.RunID,
		State:       x.State,
		SessionID:   &x.SessionID,
		StepID:      &x.StepID,
		ExecutionID: x.ExecutionID,
		Executor:    x.Executor,
		contained:   x.Contained,
	}

	if what == "step_ended" {
		e.unfinished = x.State == board.Completed && !v.isFinished(ctx, x)
		e.Message = x.FinalMessage
		e.Reason = board.OrNull(x.Why)
		e.Until = x.LimitedUntil
		if x.StartedAt != nil && x.EndedAt != nil {
			e.Seconds = new(x.Took().Seconds())
		}
		if x.Cost != nil {
			e.CostUSD = x.Cost.USD
		}
	} else {
		e.State = board.Running
	}
	v.event(e)
}

// isFinished reports whether the step of an agent that has ended is known to be finished.
func (v *runLines) isFinished(ctx context.Context, x board.RunStep) bool {
	if v.sessions == nil {
		return true
	}

	s, err := v.sessions.Read(ctx, x.SessionID)
	if err != nil {
		return true
	}

	p := s.Progress(x.StepID)
	return p != nil && p.CompletedAt != nil
}

// agentCost says how long an agent took and what it cost.
func agentCost(e runEvent) string {
	text := ""
	if e.Seconds != nil {
		text += fmt.Sprintf(" after %s", (time.Duration(*e.Seconds * float64(time.Second))).Round(100*time.Millisecond))
	}
	if e.CostUSD != nil {
		text += fmt.Sprintf(", %.2f USD", *e.CostUSD)
	}
	return text
}

func (v *runLines) end(ctx context.Context, engine *attempt.Engine, r *board.RunReply) {
	if v.app.json {
		e := runEvent{
			Event:     "run_ended",
			RunID:     r.RunID,
			State:     r.State,
			SessionID: r.SessionID,
			StepID:    r.Step,
			Reason:    r.Reason,
		}

		if r.Cost != nil {
			e.CostUSD = r.Cost.USD
		}

		v.event(e)
		return
	}

	fmt.Fprintln(v.app.out)
	v.app.printOutcome(ctx, engine, r)
}

// event prints an event as JSON or, if it is about an agent or why the run waits, for people.
func (v *runLines) event(e runEvent) {
	if e.Reason != nil {
		e.Reason = new(v.app.here(*e.Reason))
	}
	if v.app.json {
		e.At = time.Now().UTC().Format(time.RFC3339Nano)
		_ = v.app.printLine(e) // Main reports its error
		return
	}
	switch e.Event {
	case "step_started":
		how := ""
		if e.contained != "" {
			how = ", " + e.contained
		}
		fmt.Fprintf(v.app.out, "%-20s %s started%s\n", *e.StepID, e.Executor, how)
	case "step_ended":
		how := e.State.Words()
		if e.unfinished {
			how = "ended, step not finished,"
		}
		fmt.Fprintf(v.app.out, "%-20s %s %s%s\n", *e.StepID, e.Executor, how, agentCost(e))
		if e.Reason != nil {
			fmt.Fprintf(v.app.out, "  %s\n", indentRest(*e.Reason, "  "))
		}
	default:
		if e.Reason != nil {
			fmt.Fprintf(v.app.out, "%s\n", *e.Reason)
		}
	}
}

// printRun prints a run with its steps.
func (a *app) printRun(ctx context.Context, engine *attempt.Engine, v *run.View, items string) {
	a.fields("run", board.Short(v.RunID), "workflow", v.Workflow, "goal", v.Goal)
	a.printInputs(v.Inputs)
	a.fields("branch", optional(v.Branch), "folder", v.Workspace, "started", agoText(v.CreatedAt), "trace",
		cmp.Or(v.Trace.URL, v.Trace.ID))
	a.printSteps(v, items)
	a.printOutcome(ctx, engine, v.RunReply)
}

// stepNote says what a step waits for, or returns the last line of its agent's message or error.
func (a *app) stepNote(s *run.Step) string {
	switch {
	case s.List != nil:
		return s.List.Summary()
	case s.State == board.WaitingForYou:
		return a.onPath(session.AwaitingStep{SessionID: s.SessionID, Step: s.ID, Review: true}.Command())
	case s.Until != nil:
		return "its provider's limit is over at " + s.Until.Local().Format("2 Jan 15:04")
	}
	return lastLine(s.Last)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return why.Line(text[strings.LastIndexByte(text, '\n')+1:])
}

// printOutcome prints the state of a run, and what can be done next.
func (a *app) printOutcome(ctx context.Context, engine *attempt.Engine, r *board.RunReply) {
	a.fields("state", r.State.Words(), "step", optional(r.Step), "reason", a.here(optional(r.Reason)),
		"session", optional(r.SessionID))
	if r.Cost != nil && r.Cost.USD != nil {
		a.fields("cost", fmt.Sprintf("%.2f USD", *r.Cost.USD))
	}
	waiting := r.State == board.WaitingForYou || r.State == board.WaitingForLimit // as the reason says
	for _, w := range r.Waits {
		if w.Command != nil && !waiting {
			a.fields("waits", a.here(w.Text()))
		}
	}

	at, err := engine.GetAttempt(ctx, atTerminal, attempt.AttemptArgs{Target: board.Target{AttemptID: &r.RunID}})
	if err == nil {
		a.printNext(ctx, engine, &at.AttemptReply)
	}
}

// waitState returns the state of a step that waits.
func waitState(w board.RunWaits) board.State {
	if w.For == board.WaitsForPerson {
		return board.WaitingForYou
	}
	return board.WaitingForLimit
}
