package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"deepwork/actor/wait"
)

// The fractions of what the script of a relay does.
const (
	partNested   = 0.40 // of groups, beside which a nested workflow runs
	partLooked   = 0.30 // of entries, before which get_step is called
	partMistaken = 0.15 // of entries, before which a call is made that must be refused
	partReturned = 0.10 // of entries, after which a step is gone back to
	partStopped  = 0.04 // of entries, before which the session is aborted
	partCutShort = 0.05 // of reviews, during which the session is aborted
	partRejected = 0.30 // of reviews and decisions, which first fail the outputs
	partSlow     = 0.60 // of reviews, which take all of their time
	partUnnamed  = 0.50 // of steps of the workflow review, those that are finished without a request_id
)

// relayDepth is how deep workflows are nested.
const relayDepth = 3

// A relay is an agent whose successive calls of a session go to the servers in turn. It follows a script
// for each session, so that it knows which replies it may get.
type relay struct {
	*agent
	load *load
}

// patient is after how many wrong sessions a relay gives up.
const patient = 20

// work runs one session after the other, each with what is nested in it, until ctx ends or enough calls
// were made. Sessions that were begun are ended.
func (r *relay) work(ctx context.Context) {
	on := context.WithoutCancel(ctx)
	for wrong := 0; ctx.Err() == nil && !r.load.enough() && wrong < patient; {
		if r.run(on, nil, []string{"relay", "relay", "review"}[r.below(3)]) != nil {
			wrong++ // and recorded
		}
	}

	if err := r.leave(); err != nil {
		r.history.fault("a connection that did not end", "%v", err)
	}
}

// run begins a workflow and leads it to its end.
func (r *relay) run(ctx context.Context, parent *opened, workflow string) error {
	s := &opened{job: r.below(jobCount), workflow: workflow, parent: parent, goal: r.request()}
	in := input{Tool: "start_workflow", Job: jobName(s.job), Workflow: workflow, Goal: s.goal, Request: r.request()}
	if parent != nil {
		in.Parent = parent.id
	}
	r.history.ask("session", s.goal, &effect{job: in.Job})
	t, err := r.do(ctx, s, in, "begin")
	for err == nil && !t.over() {
		t, err = r.entry(ctx, s, t.reply.steps())
	}
	if err != nil {
		return err
	}

	r.load.ended.Add(1)
	if r.chance(partMistaken) {
		_, err = r.do(ctx, s, input{Tool: "get_step"}, "!session_ended")
	}
	return err
}

// entry finishes the steps of an entry, and returns the reply that begins the next one or ends the session.
func (r *relay) entry(ctx context.Context, s *opened, steps []string) (t answer, err error) {
	if r.chance(partStopped) {
		return r.abort(ctx, s)
	}
	if r.chance(partLooked) {
		if _, err := r.do(ctx, s, input{Tool: "get_step"}, "at"); err != nil {
			return t, err
		}
	}
	if r.chance(partMistaken) {
		if err := r.mistake(ctx, s); err != nil {
			return t, err
		}
	}
	if steps[0] == judgedStep && len(steps) == 1 && r.chance(partCutShort) {
		return r.cutShort(ctx, s)
	}
	t, err = r.finishAll(ctx, s, steps)
	if err != nil || t.over() || !r.chance(partReturned) {
		return t, err
	}
	back := input{Tool: "go_to_step", Step: steps[r.below(len(steps))], All: r.chance(0.5), Request: r.request()}
	t, err = r.do(ctx, s, back, "back")
	if err == nil && slices.Contains(t.reply.Cleared, judgedStep) {
		r.attempted(s, 0)
	}
	return t, err
}

// finishAll finishes steps concurrently, sometimes beside a nested workflow, and returns the reply to the
// last of them.
func (r *relay) finishAll(ctx context.Context, s *opened, steps []string) (last answer, err error) {
	replies := make([]answer, len(steps))
	var all errgroup.Group
	for i, step := range steps {
		all.Go(func() (err error) {
			replies[i], err = r.finish(ctx, s, step)
			return err
		})
	}
	if len(steps) > 1 && s.workflow == "relay" && len(s.stack()) < relayDepth && r.chance(partNested) {
		all.Go(func() error { return r.run(ctx, s, []string{"fork", "short", "relay"}[r.below(3)]) })
	}
	if err := all.Wait(); err != nil {
		return last, err
	}
	replies = slices.DeleteFunc(replies, func(t answer) bool { return strings.HasPrefix(t.said, "pending") })
	if len(replies) != 1 {
		return last, r.wrong("a group that does not go on once",
			"session %s: of the replies to %v, %d say what comes next, want 1", s.id, steps, len(replies))
	}
	return replies[0], nil
}

// finish finishes a step, with its reviews.
func (r *relay) finish(ctx context.Context, s *opened, step string) (t answer, err error) {
	in := input{
		Tool:    "finished_step",
		Step:    step,
		Outputs: r.outputs(),
		Text:    r.token("note "),
		Request: r.request(),
		Judged:  true,
	}
	if s.workflow == "review" && r.chance(partUnnamed) {
		in.Request = "" // in a group, others may move on before the call is repeated
	}
	rejects := r.chance(partRejected)
	switch step {
	case judgedStep:
		if rejects {
			again := in
			again.Request = r.request() // without one, a call after the verdict is another try
			if t, err = r.judged(ctx, s, again, fail); err != nil {
				return t, err
			}
			r.attempted(s, 1)
		}
		if t, err = r.judged(ctx, s, in, pass); err == nil {
			r.attempted(s, map[bool]int{false: 1, true: 2}[rejects])
		}
		return t, err
	case personStep:
		if rejects {
			if err := r.asked(ctx, s, &in, fail); err != nil {
				return t, err
			}
			if _, err := r.do(ctx, s, in, reviewFailed); err != nil {
				return t, err
			}
		}
		if err := r.asked(ctx, s, &in, pass); err != nil {
			return t, err
		}
		return r.do(ctx, s, in, "begin", "complete")
	}

	return r.do(ctx, s, in, "begin", "pending", "complete")
}

// judged hands a step in until its reviewer has decided about the outputs. The decision is the same for
// all calls.
func (r *relay) judged(ctx context.Context, s *opened, in input, verdict string) (t answer, err error) {
	e, err := r.handIn(&in, verdict)
	if err != nil {
		return t, err
	}

	want := []string{reviewRuns, reviewFailed}
	if verdict == pass {
		want = []string{reviewRuns, "begin", "pending", "complete"}
	}

	until := time.Now().Add(callWithin + 10*r.load.review)
	for t.said = reviewRuns; t.said == reviewRuns; {
		if t, err = r.do(ctx, s, in, want...); err != nil {
			return t, err
		}
		if time.Now().After(until) {
			return t, r.wrong("a review that does not end", "session %s: %s", s.id, in)
		}
	}
	r.history.with(func() { e.said = verdict })
	return t, nil
}

// attempted notes how many reviews of a session's step there were.
func (r *relay) attempted(s *opened, n int) {
	r.history.with(func() { r.history.sessions[s.id].judged = n })
}

// handIn writes the outputs of a reviewed step at each place, and returns the effect that is their review.
func (r *relay) handIn(in *input, verdict string) (*effect, error) {
	a := assignment{token: r.request(), verdict: verdict, takes: r.load.review}
	if !r.chance(partSlow) {
		a.takes /= 4
	}
	in.Outputs = outputs{Report: judgedPath(a.token, verdict)}.String()
	for _, s := range r.places() {
		err := os.WriteFile(filepath.Join(r.rootOf(s), judgedPath(a.token, verdict)), []byte(a.String()), 0o644)
		if err != nil {
			return nil, r.wrong("outputs that cannot be written", "%v", err)
		}
	}

	return r.history.ask(aReview, a.token, &effect{}), nil
}

// asked hands in a step that a person has to pass, and then decides as that person.
func (r *relay) asked(ctx context.Context, s *opened, in *input, verdict string) error {
	in.Request = r.request()
	in.Outputs = outputs{
		Report: outputPath(r.below(outputFiles)),
		Papers: []string{map[string]string{pass: outputPath(0), fail: outputPath(1)}[verdict]},
	}.String()
	if _, err := r.do(ctx, s, *in, personAwaited); err != nil {
		return err
	}
	return r.decide(ctx, s, in.Step, verdict)
}

// abort ends a session.
func (r *relay) abort(ctx context.Context, s *opened) (answer, error) {
	return r.do(ctx, s, input{Tool: "abort_workflow", Text: r.token("enough "), Request: r.request()}, "aborted")
}

// cutShort ends a session while a review runs at another server.
func (r *relay) cutShort(ctx context.Context, s *opened) (t answer, err error) {
	in := input{Tool: "finished_step", Step: judgedStep, Text: r.token("note "), Judged: true}
	if _, err := r.handIn(&in, fail); err != nil {
		return t, err
	}

	var both errgroup.Group
	both.Go(func() error {
		_, err := r.once(ctx, s, in, reviewRuns, reviewFailed, "step_moved_on", "!session_ended")
		return err
	})
	r.attempted(s, unknown)
	_ = wait.For(ctx, r.load.review/8)
	t, err = r.abort(ctx, s)
	if werr := both.Wait(); err == nil {
		err = werr
	}
	return t, err
}

// mistake makes a call that must be refused, whichever server gets it.
func (r *relay) mistake(ctx context.Context, s *opened) error {
	if r.chance(0.5) {
		_, err := r.do(ctx, s, input{Tool: "go_to_step", Step: reviewedStep}, "!unknown_step")
		return err
	}
	_, err := r.do(ctx, s, input{Tool: "finished_step", Step: reviewedStep, Outputs: r.outputs(), Judged: true},
		"!unknown_step")
	return err
}
