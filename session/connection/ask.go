package connection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/machine"
	"deepwork/session/workflow"
)

// An AskFunc has the client of a call ask its user. key identifies the question: its session and step (see
// askedAbout), the outputs, when it arose, and who is asked. The answer is nil if there is none when ctx
// ends, or if the client asks only after the call is answered and then repeats the call with the user's
// answer. declined means that the user closed the form without answering. If question is "", nobody is asked
// and only an answer that the call brings counts. Only the answer's Passed and Feedback are used.
type AskFunc func(ctx context.Context, key, question string) (answer *machine.Answer, declined bool)

type askKey struct{}

// An asker is the client of a call, which may be able to ask its user.
type asker struct {
	able     func() bool
	answered []string // the keys of the questions that the call brings answers to
	ask      AskFunc
}

// WithAsk returns a context whose calls may ask the client's user. able reports whether the client can ask,
// and is called once there is a question; a nil f means that it cannot. answered has the keys of the
// questions that the call brings answers to.
func WithAsk(ctx context.Context, able func() bool, answered []string, f AskFunc) context.Context {
	return context.WithValue(ctx, askKey{}, asker{able, answered, f})
}

// askedAbout returns the session and the step of the question that a call answers, or "". The client repeats
// the call unchanged, which may have named neither; it must not apply to whatever is current by then.
func askedAbout(ctx context.Context) (id, step string) {
	c, _ := ctx.Value(askKey{}).(asker)
	for _, key := range c.answered {
		if id, step, _ = strings.Cut(key, "/"); machine.IsSessionID(id) {
			return id, step[:max(0, strings.LastIndex(step, "/"))]
		}
	}
	return "", ""
}

// clientOf returns the AskFunc of the call's client, or nil.
func clientOf(ctx context.Context) AskFunc {
	c, _ := ctx.Value(askKey{}).(asker)
	if c.ask == nil || !c.able() {
		return nil
	}
	return c.ask
}

// ask has the client of a call ask its user about the outputs of a step with this digest until within ends, and
// records the answer until ctx ends. It reports whether the question is settled, here or elsewhere, so that the call
// gets another reply. A user who declines is not asked again about these outputs.
func (s *Server) ask(
	ctx, within context.Context, who session.Caller, id, stepID, digest string,
) (settled bool, err error) {
	client := clientOf(ctx)
	if client == nil || within.Err() != nil {
		return false, nil
	}

	h, err := s.HandIn(ctx, id, stepID)
	if err != nil || h.Digest != digest {
		return false, err
	}
	question := h.Brief()
	if slices.Contains(h.Declined, who.Identity) {
		question = ""
	}
	key := id + "/" + stepID + "/" +
		session.Digest(fmt.Sprintf("%q %v", []string{who.Identity, id, stepID, digest}, h.Asked.UnixNano()))

	within, cancel := context.WithCancel(within)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { // end the question when it is settled elsewhere
		s.AwaitSettled(within, id, stepID, digest)
		cancel()
	})

	answer, declined := client(within, key, question)
	switch {
	case answer != nil:
		return true, s.ReviewFor(ctx, id, stepID, digest, machine.Answer{
			Identity: who.Identity,
			Channel:  who.Channel,
			Client:   true,
			Passed:   answer.Passed,
			Feedback: answer.Feedback,
		})
	case declined:
		if err = s.Decline(ctx, id, stepID, digest, who.Identity); err != nil { // settled meanwhile, or asked again
			s.Logger.Debug("that a user declined was not recorded", "session", id, "step", stepID, "error", err)
		}
	}

	return ctx.Err() == nil && s.Settled(ctx, id, stepID, digest), nil
}

// ask asks what a finished_step waits for, until the call must be answered. It asks only where an agent could
// override reviews, too (quality_gate.override is agent): only the client says that a user answered, and an
// agent that can start a program can be a client. The notice says why an answer did not count.
func (c *Conn) ask(
	ctx context.Context, who workflow.Caller, f *workflow.Finished, until time.Time,
) (settled bool, notice string) {
	if f.Asks == "" {
		return false, ""
	}

	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	about := f.Reply.Going
	settled, err := c.server.ask(ctx, within, session.Caller{Identity: who.Identity, Channel: who.Channel},
		about.SessionID, about.StepID, f.Asks)
	if err != nil {
		c.server.Logger.Warn("the answer of a client's user was not recorded", "session", about.SessionID, "step",
			about.StepID, "error", err)
		return ctx.Err() == nil && c.server.Settled(ctx, about.SessionID, about.StepID, f.Asks),
			fmt.Sprintf("The answer that your user gave in the form did not count: %v", err)
	}
	return settled, ""
}

// AskAbout asks the user of a call's client about a step of a run that waits for a person. The conditions are
// those of a finished_step, and it takes as long as a call that arrived at that time may.
func (s *Server) AskAbout(
	ctx context.Context, who session.Caller, arrived time.Time, id, stepID string,
) (settled bool, err error) {
	how, err := s.Reviewing(ctx)
	if err != nil || clientOf(ctx) == nil || !who.Owner || how.Override != config.OverrideAgent && how.Override != "" {
		return false, err
	}

	r, err := s.Records().Read(ctx, id, nil)
	if err != nil {
		return false, err
	}
	q, err := r.State.ToAnswer(stepID, "")
	if err != nil {
		return false, err
	}

	within, cancel := context.WithDeadline(ctx, arrived.Add(how.ReplyWithin))
	defer cancel()
	return s.ask(ctx, within, who, id, stepID, q.Content)
}

type progressKey struct{}

// WithProgress returns a context whose calls report their progress.
func WithProgress(ctx context.Context, f workflow.ProgressFunc) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

func progressOf(ctx context.Context) workflow.ProgressFunc {
	f, _ := ctx.Value(progressKey{}).(workflow.ProgressFunc)
	return f
}
