package pin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/machine"
)

// A Session applies the policy to one session, whose state is given to each method. It is not safe for concurrent
// use.
type Session struct {
	*Policy
	begun *machine.Definition // the definition that the session began with, once read
}

// Reviewing returns how the session's steps are reviewed: as configured now or, in a pinned session, as when
// it began where that was stricter.
func (p *Session) Reviewing(ctx context.Context, s *machine.State) (Reviewing, error) {
	how, err := p.Configured(ctx)
	was := s.Pinned
	if err != nil || was == nil || !p.Reviews {
		return how, err
	}
	if how.Pin = how.Pin || was.Pin; !how.Pin {
		return how, nil
	}

	if was.Override.Stricter(how.Override) {
		how.Override = was.Override
	}
	weaker := weakerReviewer(was.Reviewer, p.reviewer(how))
	if weaker == "" {
		return how, nil
	}

	how.External = true
	how.Refused = errors.New("this server cannot start another reviewer than the configured one")
	if how.Earlier != nil {
		how.Use, how.Refused = how.Earlier(was.Reviewer)
	}
	if how.Refused != nil {
		how.Refused = session.NotNow(codes.PinnedReviewerGone,
			"Session '%s' is pinned to the reviewer that it began with (quality_gate.pin): %s. That one cannot "+
				"be started now (%v), so no step with reviews can be finished. Tell the user to restore it, or "+
				"abort the session.", s.SessionID, weaker, how.Refused).
			With("session_id", s.SessionID).With("reviewer", was.Reviewer).Because(how.Refused)
	}
	return how, nil
}

// Definition returns the definition that the session goes on with: the job's current one or, if an edit has
// dropped or changed checks or has weakened the reviews of a pinned session, the stored one.
func (p *Session) Definition(ctx context.Context, s *machine.State) (*machine.Definition, error) {
	def, err := p.Definitions.Current(ctx, s, p.Place)
	if err != nil {
		return nil, err
	}
	if !Edited(s, def) {
		return def, nil
	}
	if kept, err := p.keepingChecks(s, def); err != nil || kept != nil || def.Kept {
		return cmp.Or(kept, def), err
	}

	how, err := p.Reviewing(ctx, s)
	if err != nil || !how.Pin {
		return def, err
	}
	weaker := p.weaker(s, def)
	if len(weaker) == 0 {
		return def, nil
	}

	kept, err := p.Definitions.Kept(s.Definition)
	if err != nil {
		return nil, session.NotNow(codes.DefinitionLost,
			"Session '%s' is pinned to the reviews that it began with, which cannot be read (%v). Restore job '%s' "+
				"as it was, or abort the session.", s.SessionID, err, s.JobName).
			With("session_id", s.SessionID).Because(err)
	}
	kept.Notice = fmt.Sprintf("Job '%s' was edited, and reviews less than when this session began (%s). The session "+
		"is pinned (quality_gate.pin): it goes on with the definition it has.", s.JobName, strings.Join(weaker, "; "))
	return kept.For(s), nil
}

// keepingChecks returns the definition to go on with instead of def, if def drops or changes checks or
// schemas that the session began with: the one stored last, or else the one that the session began with. It
// returns nil if def drops none, or if the definition that the session began with is lost; an error is the
// store's.
func (p *Session) keepingChecks(s *machine.State, def *machine.Definition) (*machine.Definition, error) {
	if p.begun == nil || p.begun.Ref != s.Pinned.Definition {
		begun, err := p.Definitions.Kept(s.Pinned.Definition)
		if session.CodeOf(err) != "" {
			return nil, err
		} else if err != nil {
			p.Logger.Warn("the definition that a session began with cannot be read", "session", s.SessionID,
				"error", err)
			return nil, nil
		}
		p.begun = begun
	}
	less := compare(s, p.begun, def).checks
	if len(less) == 0 {
		return nil, nil
	}

	kept, err := p.Definitions.Kept(s.Definition)
	// A step was done while its checks were dropped; it must be done again.
	if err != nil || len(compare(s, p.begun, kept).checks) > 0 {
		begun := *p.begun
		kept = &begun
		if kept.For(s).Workflow.Find(s.CurrentStepID) < 0 {
			return nil, session.NotNow(codes.DefinitionLost,
				"Session '%s' cannot go on: job '%s' was edited, and drops or changes checks or schemas that this "+
					"session began with (%s), when it did not have the current step '%s'.",
				s.SessionID, s.JobName, strings.Join(less, "; "), s.CurrentStepID).
				Ask("restore those in job.yml").
				Next("abort the session instead", "abort_workflow", "session_id", s.SessionID).
				With("session_id", s.SessionID)
		}
	}
	kept.Notice = fmt.Sprintf("Job '%s' was edited, and drops or changes checks or schemas that this session began "+
		"with (%s). The edit counts for the next session: this one goes on with the definition it has.",
		s.JobName, strings.Join(less, "; "))
	return kept.For(s), nil
}

// Edited reports whether a definition differs from the one that the session began with, if that is known.
func Edited(s *machine.State, def *machine.Definition) bool {
	p := s.Pinned
	return p != nil && p.Definition.Hash != "" && def.Job.Hash != p.Definition.Source
}

// weaker returns in what way a definition reviews less than the one that the session began with.
func (p *Session) weaker(s *machine.State, def *machine.Definition) []string {
	if !Edited(s, def) {
		return nil
	}

	was, err := p.Definitions.Kept(s.Pinned.Definition)
	if err != nil {
		return []string{fmt.Sprintf("the job was edited, and the reviews that the session began with cannot be "+
			"read: %v", err)}
	}
	return compare(s, was, def).reviews
}

// Weakened returns in what way the reviews are weaker than when the session began.
func (p *Session) Weakened(ctx context.Context, s *machine.State, def *machine.Definition) ([]string, error) {
	was := s.Pinned
	if was == nil {
		return nil, nil
	}

	how, err := p.Reviewing(ctx, s)
	if err != nil {
		return nil, err
	}

	what := p.weaker(s, def)
	text := weakerReviewer(was.Reviewer, p.reviewer(how))
	if text != "" && how.Use == nil && !p.Command {
		what = append(what, text)
	}
	if was.Override.Stricter(how.Override) {
		what = append(what, fmt.Sprintf("quality_gate.override was %s, and is %s", was.Override,
			cmp.Or(how.Override, "agent")))
	}
	return what, nil
}
