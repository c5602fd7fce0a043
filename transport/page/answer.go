package page

import (
	"context"
	"net/http"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// An answerForm is what a person sees who is asked to pass the outputs of a step.
type answerForm struct {
	SessionID, Step, Digest, Notes string
	Files                          []machine.FileHash
	Criteria                       []job.Criteria
}

// answerForm returns the form for a step of a session, or nil if nobody is asked about it here.
func (s *Site) answerForm(ctx context.Context, id, stepID string) *answerForm {
	state, err := s.Engine.Read(ctx, id)
	if err != nil {
		return nil // it is gone
	}
	return answerFormOf(s.Engine, state, stepID)
}

// answerFormOf returns the form for a step of a session, or nil if nobody is asked about it.
func answerFormOf(e *workflow.Engine, state *machine.State, stepID string) *answerForm {
	q, err := state.ToAnswer(stepID, "")
	if err != nil {
		return nil
	}
	f := &answerForm{SessionID: state.SessionID, Step: stepID, Digest: q.Digest, Files: q.Files}
	if q.Notes != nil {
		f.Notes = *q.Notes
	}
	if step, err := e.Step(state, stepID); err == nil { // else the page says that it cannot be read
		for _, r := range step.ReviewsBy(true) {
			f.Criteria = append(f.Criteria, r.Criteria...)
		}
	}
	return f
}

// answer records what the person who looks at the page decides about the outputs that the form showed.
func (s *Site) answer(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if !who.Has(session.RightPerson) {
		return "", session.NotNow(codes.RightNeeded, "Passing a step needs the right person, which %s does not have: open the pages with deepwork ui, or run deepwork sessions review at a terminal.", who.Identity)
	}
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	decision, digest := r.PostForm.Get("decision"), r.PostForm.Get("digest")
	a := machine.Answer{Identity: who.Identity, Channel: who.Channel, Passed: decision == "pass", Feedback: strings.TrimSpace(r.PostForm.Get("feedback"))}
	switch {
	case !a.Passed && decision != "fail", digest == "":
		return "", session.Wrong(codes.BadDecision, "Send pass or fail as the decision, and the digest of the outputs that the page showed; got %q and %q.", decision, digest)
	case !a.Passed && a.Feedback == "":
		return "", session.Wrong(codes.ReasonNeeded, "Say what the agent is to change.")
	}
	next, step := back(r, "/sessions/"+p.ID), r.PostForm.Get("step")
	return next, s.Engine.ReviewFor(ctx, p.ID, step, digest, a)
}
