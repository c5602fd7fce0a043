package workflow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"deepwork/actor/wait"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/workflow/machine"
)

// A question is what the client of a finished_step may ask its user.
type question struct {
	decision // without its answer
	Text     string
}

// questionText is what a person reads in a client. root is where the files are.
func questionText(root string, s *machine.State, stepID string, q *machine.Question, reviews []job.Review) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Session %s (%s): do you pass the outputs of step '%s'? Look at them first, in %s:\n", s.SessionID, s.Goal, stepID, root)
	for _, f := range q.Files {
		fmt.Fprintf(&b, "- %s\n", f.Path)
	}
	b.WriteString("Criteria:\n")
	for _, r := range reviews {
		for _, c := range r.Criteria {
			fmt.Fprintf(&b, "- %s: %s\n", c.Name, strings.TrimSpace(c.Question))
		}
	}
	return b.String()
}

// An AskFunc has the client of a call ask its user. It returns nil if there is no answer by the end of
// ctx. Only Passed and Feedback of the answer are used.
type AskFunc func(ctx context.Context, question string) *machine.Answer

type askKey struct{}

// WithAsk returns a context whose calls may ask the client's user.
func WithAsk(ctx context.Context, f AskFunc) context.Context {
	return context.WithValue(ctx, askKey{}, f)
}

// askUser has a client ask its user, unless they have declined before to answer about these outputs, which
// declined remembers. The question ends when it is settled, too.
func (e *Engine) askUser(ctx context.Context, client AskFunc, declined *sync.Map, id string, q question) *machine.Answer {
	key := id + " " + q.Digest
	if _, before := declined.Load(key); before || ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	e.aside(func() {
		for changed := e.follower.changed(id); !e.settled(ctx, id, q.decision); changed = e.follower.changed(id) {
			if wait.Until(ctx, askedEvery, changed) != nil {
				return
			}
		}
		cancel()
	})
	answer := client(ctx, q.Text)
	if answer == nil && ctx.Err() == nil {
		declined.Store(key, true)
	}
	return answer
}

// askedEvery is how often a question that a client asks is looked at, if nothing wakes that.
const askedEvery = 5 * time.Second

// settled reports whether a step no longer waits for a decision: somebody has answered, or the session has moved
// on, at any server.
func (e *Engine) settled(ctx context.Context, id string, d decision) bool {
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return false
	}
	_, err = r.State.ToAnswer(d.Step, d.Digest)
	return err != nil
}

// ask has the client of a finished_step ask its user what the step waits for, until the call has to be
// answered, and reports whether the question is settled, so that the call has another reply. It asks only where
// an agent could override reviews too (quality_gate.override is agent): that a user answered is the client's word,
// and an agent that can start a program can be a client. Who declines is not asked again about these outputs.
func (c *Conn) ask(ctx context.Context, who caller, f *finished, until time.Time) bool {
	client, _ := ctx.Value(askKey{}).(AskFunc)
	if f.question == nil || client == nil {
		return false
	}
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	d := f.question.decision
	if answer := c.engine.askUser(within, client, &c.declined, f.ID, *f.question); answer != nil {
		d.Answer = machine.Answer{At: c.engine.now(), Identity: who.Identity, Channel: who.Channel, Client: true, Passed: answer.Passed, Feedback: answer.Feedback}
		err := c.engine.unchanged(ctx, f.ID, d)
		if err == nil {
			_, err = ask(ctx, c.engine, f.ID, func(_ context.Context, a *sessionActor) (struct{}, error) { return struct{}{}, a.decide(d) })
		}
		if err == nil {
			return true
		}
		c.engine.Logger.Warn("the answer of a client's user was not recorded", "session", f.ID, "step", d.Step, "error", err)
	}
	return ctx.Err() == nil && c.engine.settled(ctx, f.ID, d)
}

// AskAbout has the client of a call ask its user about a step of a run that waits for a person, for as long
// as a call may take, and reports whether the question is settled. It asks under the
// conditions of ask, and does not ask a user again who has declined.
func (e *Engine) AskAbout(ctx context.Context, who session.Caller, id, stepID string) (answered bool, err error) {
	client, _ := ctx.Value(askKey{}).(AskFunc)
	how, err := e.Reviewing(ctx)
	if err != nil || client == nil || !who.Owner || how.Override != config.OverrideAgent && how.Override != "" {
		return false, err
	}
	r, err := e.records.Read(ctx, id, nil)
	if err != nil {
		return false, err
	}
	q, err := r.State.ToAnswer(stepID, "")
	if err != nil {
		return false, err
	}
	step, err := e.Step(r.State, stepID)
	if err != nil {
		return false, err
	}
	within, cancel := context.WithTimeout(ctx, how.ReplyWithin)
	defer cancel()
	asks := question{decision{Step: stepID, Digest: q.Digest}, questionText(e.exports.RootOf(r.Row), r.State, stepID, q, step.ReviewsBy(true))}
	answer := e.askUser(within, client, &e.declined, id, asks)
	if answer == nil {
		return ctx.Err() == nil && e.settled(ctx, id, asks.decision), nil
	}
	return true, e.ReviewFor(ctx, id, stepID, q.Digest, machine.Answer{Identity: who.Identity, Channel: who.Channel, Client: true, Passed: answer.Passed, Feedback: answer.Feedback})
}

// A ProgressFunc receives the progress of a call, as done of total, and what it waits for. It must
// not block.
type ProgressFunc func(done, total int, message string)

type progressKey struct{}

// WithProgress returns a context whose calls report their progress.
func WithProgress(ctx context.Context, f ProgressFunc) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

func progressOf(ctx context.Context) ProgressFunc {
	f, _ := ctx.Value(progressKey{}).(ProgressFunc)
	return f
}
