package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"deepwork/actor/durable"
	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store/local"
	"deepwork/session/workflow/machine"
)

// An openStep is a current step that no person has let go on. Whether it waits for one depends on the
// settings, and on whether the agent was asked to review it.
type openStep struct {
	id      string
	began   time.Time
	given   bool      // it was handed in for a review
	failed  time.Time // when the newest review failed; zero if none did
	reviews int       // of the step
	asked   time.Time // when a person was asked to pass its outputs; zero if nobody is asked now
}

// openSteps returns the open steps of a session, none if it has ended.
func openSteps(s *machine.State) (open []openStep) {
	if s.Status != machine.Active {
		return nil
	}
	for _, entry := range s.StepProgress {
		p := entry.Value
		if !s.IsCurrent(entry.Key) || p.HasGrant() {
			continue
		}
		step := openStep{id: entry.Key, began: p.StartedAt, reviews: p.QualityAttempts}
		if p.Question.Open() {
			step.asked = p.Question.AskedAt
		}
		if last := p.Newest(); last != nil {
			step.given = true
			if last.State == machine.AttemptFailed && last.ClosedAt != nil {
				step.failed = *last.ClosedAt
			}
		}
		open = append(open, step)
	}
	return open
}

// awaiting returns the open steps of a session that wait for a person: those whose outputs one is asked
// to pass, those whose outputs failed as many reviews as are allowed, and, if only persons may override,
// those that the agent has to review itself. The instructions of that review are in tmp, on the machine where the agent works.
func awaiting(s *machine.State, open []openStep, how Reviewing, tmp string, sealer durable.Sealer) (all []session.AwaitingStep) {
	if p := s.Pinned; p != nil && (how.Pin || p.Pin) && p.Override.Stricter(how.Override) {
		how.Override = p.Override
	}
	for _, o := range open {
		step := session.AwaitingStep{SessionID: s.SessionID, Step: o.id, Goal: s.Goal, Since: o.failed}
		if step.Review = !o.asked.IsZero(); step.Review {
			step.Since = o.asked
			all = append(all, step)
			continue
		}
		if how.Override == config.OverrideNever {
			continue
		}
		if o.given {
			if !o.failed.IsZero() && o.reviews >= how.MaxAttempts {
				all = append(all, step)
			}
			continue
		}
		if how.Override != config.OverrideHuman {
			continue
		}
		path := filepath.Join(tmp, "quality_review_"+s.SessionID+"_"+o.id+".md")
		fi, err := os.Stat(path)
		if err != nil || fi.ModTime().Before(o.began) || readReviewed(sealer, path).Digest == "" {
			continue
		}
		step.Since = fi.ModTime().UTC()
		all = append(all, step)
	}
	return all
}

// awaitingBy returns the settings by which steps wait for a person. On a server without reviews only those
// wait that a person is asked to pass.
func (e *Engine) awaitingBy(ctx context.Context) (Reviewing, error) {
	how, err := e.Reviewing(ctx)
	if !e.Reviews {
		how.Override = config.OverrideNever
	}
	return how, err
}

// AwaitingAmong is Awaiting for sessions that were read before, of any identities.
func (e *Engine) AwaitingAmong(ctx context.Context, sessions []*SessionInfo) (all []session.AwaitingStep, err error) {
	how, err := e.awaitingBy(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range sessions {
		if i.Err == nil {
			all = append(all, awaiting(&i.State, i.open, how, e.State.Tmp(), e.records.Sealer())...)
		}
	}
	return all, nil
}

// Awaiting returns the steps of an identity's active sessions that wait for a person.
func (e *Engine) Awaiting(ctx context.Context, identity string) (all []session.AwaitingStep, err error) {
	how, err := e.awaitingBy(ctx)
	if err != nil {
		return nil, err
	}
	tried := 0
	for id, err := range e.records.Active(ctx, identity) {
		if err != nil {
			return nil, fmt.Errorf("listing the active sessions: %w", err)
		}
		if tried++; tried > triedListed || ctx.Err() != nil {
			break
		}
		// What cannot be read is reported where it is used.
		if s, err := e.records.Peek(id); err == nil && s.Identity == identity {
			all = append(all, awaiting(s, openSteps(s), how, e.State.Tmp(), e.records.Sealer())...)
		}
	}
	return all, ctx.Err()
}

// Awaiting returns the steps of all active sessions that wait for a person, by the settings of the
// config.
func (a *Archive) Awaiting(ctx context.Context, c *config.QualityGate) (all []session.AwaitingStep, err error) {
	how := Reviewing{MaxAttempts: c.DefaultMaxAttempts, Override: c.Override, Pin: c.Pin}
	for info, err := range a.read.List(ctx) {
		if err != nil {
			return nil, fmt.Errorf("listing the sessions: %w", err)
		}
		s, err := a.read.Load(info.ID)
		if err == nil { // else it was removed meanwhile, or deepwork sessions list says why
			all = append(all, awaiting(s, openSteps(s), how, a.state.Tmp(), a.read.Sealer())...)
		}
	}
	return all, ctx.Err()
}

// OpenWorkspace opens the sessions in the workspace of an attempt: they are always files there. Nothing
// is created. The caller calls done after it.
func OpenWorkspace(root string, logger *slog.Logger) (a *Archive, done func() error, err error) {
	folder, err := state.Find(root)
	if err != nil {
		return nil, nil, err
	}
	stores := local.Stores(folder, false, logger)
	if a, err = OpenArchive(folder, stores, logger); err != nil {
		return nil, nil, errors.Join(err, stores.Close(context.Background()))
	}
	return a, func() error { return errors.Join(a.Close(), stores.Close(context.Background())) }, nil
}

// AwaitingIn adds to steps those of the active sessions in workspaces that wait for a person. It skips
// a workspace that it cannot read, such as one that is being removed.
func AwaitingIn(ctx context.Context, steps []session.AwaitingStep, workspaces []string, c *config.QualityGate, logger *slog.Logger) ([]session.AwaitingStep, error) {
	for _, root := range workspaces {
		a, done, err := OpenWorkspace(root, logger)
		var more []session.AwaitingStep
		if err == nil {
			more, err = a.Awaiting(ctx, c)
			err = errors.Join(err, done())
		}
		if err != nil {
			logger.Debug("the sessions in a workspace cannot be read", "workspace", root, "error", err)
		}
		steps = append(steps, more...)
	}
	return steps, ctx.Err()
}
