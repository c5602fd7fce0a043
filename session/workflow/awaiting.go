package workflow

import (
	"context"
	"slices"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/record"
	"deepwork/session/store"
)

// awaiting returns the open steps of a session that wait for a person: those whose outputs one is asked
// to pass, those whose outputs failed as many reviews as are allowed, and, if only persons may override,
// those that the agent has to review itself.
func awaiting(row store.Session, how Reviewing) (all []session.AwaitingStep) {
	w := record.WaitingIn(row)
	if (how.Pin || w.Pin) && w.Override.Stricter(how.Override) {
		how.Override = w.Override
	}
	for _, o := range w.Steps {
		step := session.AwaitingStep{SessionID: row.ID, Step: o.ID, Goal: row.Goal, Since: o.Failed}
		switch {
		case !o.Asked.IsZero():
			step.Review, step.Since = true, o.Asked
		case how.Override == config.OverrideNever:
			continue
		case o.Given:
			if o.Failed.IsZero() || o.Reviews < how.MaxAttempts {
				continue
			}
		case how.Override == config.OverrideHuman && !o.Shown.IsZero():
			step.Since = o.Shown
		default:
			continue
		}
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

// Awaiting returns the steps that wait for a person, of a caller's active sessions in the project, all if it is
// the owner, and of those of attempts.
func (e *Engine) Awaiting(ctx context.Context, who session.Caller, attempts []string) (all []session.AwaitingStep, err error) {
	how, err := e.awaitingBy(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := e.records.List(ctx, store.SessionQuery{Active: true, Waiting: true, Limit: triedListed})
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.AttemptID == "" && (who.Owner || who.Identity == row.Identity) || slices.Contains(attempts, row.AttemptID) {
			all = append(all, awaiting(row, how)...)
		}
	}
	return all, nil
}
