package workflow

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow/machine"
)

// reviewer is the current reviewer, in the form of machine.Pinned.
func (e *Engine) reviewer(how Reviewing) string {
	if !e.Reviews {
		return machine.ReviewerOff
	}
	return cmp.Or(how.Reviewer, machine.ReviewerSelf)
}

// pin returns what a new session begins with.
func (e *Engine) pin(how Reviewing, def *machine.Definition) *machine.Pinned {
	return &machine.Pinned{Reviewer: e.reviewer(how), Override: how.Override, Pin: how.Pin, Definition: def.Ref}
}

// reviewing returns how the session's steps are reviewed: as configured now or, if the session is
// pinned, as when it began where that was stricter.
func (a *sessionActor) reviewing(ctx context.Context) (Reviewing, error) {
	how, err := a.engine.Reviewing(ctx)
	p := a.state.Pinned
	if err != nil || p == nil || !a.engine.Reviews {
		return how, err
	}
	if how.Pin = how.Pin || p.Pin; !how.Pin {
		return how, nil
	}
	if p.Override.Stricter(how.Override) {
		how.Override = p.Override
	}
	if weaker := p.WeakerReviewer(a.engine.reviewer(how)); weaker != "" {
		how.External = true
		if how.Refused = fmt.Errorf("this server cannot start another reviewer than the configured one"); how.Earlier != nil {
			how.use, how.Refused = how.Earlier(p.Reviewer)
		}
		if how.Refused != nil {
			how.Refused = session.NotNow(codes.PinnedReviewerGone,
				"Session '%s' is pinned to the reviewer that it began with (quality_gate.pin): %s. That one cannot be started now (%v), so no step with reviews can be finished. Tell the user to restore it, or abort the session.", a.id, weaker, how.Refused).
				With("session_id", a.id).With("reviewer", p.Reviewer).Because(how.Refused)
		}
	}
	return how, nil
}

// definition returns the definition that the session goes on with: that of the job as it is now or,
// if an edit has dropped or changed checks or, in a pinned session, weakened the reviews, the one that was kept.
func (a *sessionActor) definition(ctx context.Context) (*machine.Definition, error) {
	def, err := a.engine.definitions.Current(ctx, a.state, a.engine.placeKey())
	if err != nil {
		return nil, err
	}
	if !a.edited(def) {
		return def, nil
	}
	if kept := a.keepingChecks(def); kept != nil || def.Kept {
		return cmp.Or(kept, def), nil
	}
	how, err := a.reviewing(ctx)
	if err != nil || !how.Pin {
		return def, err
	}
	weaker, err := a.weaker(def)
	if err != nil || len(weaker) == 0 {
		return def, err
	}
	kept, err := a.engine.definitions.Kept(a.state.Definition)
	if err != nil {
		return nil, session.NotNow(codes.DefinitionLost, "Session '%s' is pinned to the reviews that it began with, which cannot be read (%v). Restore job '%s' as it was, or abort the session.", a.id, err, a.state.JobName).
			With("session_id", a.id).Because(err)
	}
	kept.Notice = fmt.Sprintf("Job '%s' was edited, and reviews less than when this session began (%s). The session is pinned (quality_gate.pin): it goes on with the definition it has.", a.state.JobName, strings.Join(weaker, "; "))
	return kept.For(a.state), nil
}

// keepingChecks returns the definition with which the session goes on instead of one that drops or changes checks
// or schemas that it began with: that which was stored last, or else the one that it began with. It returns nil if
// that one drops nothing.
func (a *sessionActor) keepingChecks(def *machine.Definition) *machine.Definition {
	if a.begun == nil || a.begun.Ref != a.state.Pinned.Definition {
		begun, err := a.engine.definitions.Kept(a.state.Pinned.Definition)
		if err != nil {
			a.engine.Logger.Warn("the definition that a session began with cannot be read", "session", a.id, "error", err)
			return nil
		}
		a.begun = begun
	}
	less := a.state.LessChecked(a.begun, def)
	if len(less) == 0 {
		return nil
	}
	kept, err := a.engine.definitions.Kept(a.state.Definition)
	if err != nil || len(a.state.LessChecked(a.begun, kept)) > 0 { // a step was done when its checks were dropped, and is done again
		begun := *a.begun
		kept = &begun
	}
	kept.Notice = fmt.Sprintf("Job '%s' was edited, and drops or changes checks or schemas that this session began with (%s). The edit counts for the next session: this one goes on with the definition it has.", a.state.JobName, strings.Join(less, "; "))
	return kept.For(a.state)
}

// edited reports whether a definition is another than the one that the session began with, if that
// is known.
func (a *sessionActor) edited(def *machine.Definition) bool {
	p := a.state.Pinned
	return p != nil && p.Definition.Hash != "" && def.Job.Hash != p.Definition.Source
}

// weaker returns how a definition reviews less than the one that the session began with.
func (a *sessionActor) weaker(def *machine.Definition) ([]string, error) {
	if !a.edited(def) {
		return nil, nil
	}
	was, err := a.engine.definitions.Kept(a.state.Pinned.Definition)
	if err != nil {
		return []string{fmt.Sprintf("the job was edited, and the reviews that the session began with cannot be read: %v", err)}, nil
	}
	return a.state.Weaker(was, def), nil
}

// weakened returns how the reviews are weaker than when the session began.
func (a *sessionActor) weakened(ctx context.Context, def *machine.Definition) ([]string, error) {
	p := a.state.Pinned
	if p == nil {
		return nil, nil
	}
	how, err := a.reviewing(ctx)
	if err != nil {
		return nil, err
	}
	what, err := a.weaker(def)
	if text := p.WeakerReviewer(a.engine.reviewer(how)); text != "" && how.use == nil {
		what = append(what, text)
	}
	if p.Override.Stricter(how.Override) {
		what = append(what, fmt.Sprintf("quality_gate.override was %s, and is %s", p.Override, cmp.Or(how.Override, "agent")))
	}
	return what, err
}
