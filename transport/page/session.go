package page

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/codes"
	"deepwork/session/store"
	"deepwork/session/workflow"
	"deepwork/session/workflow/machine"
)

// A sessionPage shows one session.
type sessionPage struct {
	*workflow.SessionInfo
	State    *machine.State          // nil if it cannot be read
	Above    []*workflow.SessionInfo // what it is nested in, the outermost first
	Children []*workflow.SessionInfo
	Timeline [][]stepView // the entries of the workflow, the members of a group together
	Fault    string       // why the steps that have not begun are not shown
	Only     string       // the id of the one step that is shown, "" for all
	Attempt  string       // the attempt whose agent has it in its workspace, "" for one of the project

	engine *workflow.Engine
}

// A stepView is a step on the timeline.
type stepView struct {
	Step     *job.Step             // nil if the definition cannot be read
	Progress *machine.StepProgress // nil if it has not begun
	ID       string
	Current  bool
	Digest   string             // what a person who overrides its reviews now has seen
	Files    []machine.FileHash // and its files
	Answer   *answerForm        // nil if nobody is asked to pass its outputs
	Brief    bool               // what was said and judged is on a page of its own
}

// maxDetails is how many bytes of what was said and judged a page shows.
const maxDetails = 40 << 10

// fit makes steps brief that do not fit, first those that are not current, or leaves all out but one.
func (p *sessionPage) fit(only string) {
	left := maxDetails
	for _, current := range []bool{true, false} {
		for _, group := range p.Timeline {
			for i := range group {
				if v := &group[i]; v.Current == current {
					text, _ := json.Marshal(v.Progress) // about what a page shows of it
					v.Brief = len(text) > left
					if !v.Brief {
						left -= len(text)
					}
				}
			}
		}
	}
	for _, group := range p.Timeline {
		for _, v := range group {
			if v.ID == only {
				v.Brief = false
				p.Only, p.Timeline = only, [][]stepView{{v}}
				return
			}
		}
	}
}

// Reviewed reports whether the step has reviews that a person can override now.
func (v stepView) Reviewed() bool { return v.Current && v.Step != nil && len(v.Step.Reviews) > 0 }

// Unfold reports whether an attempt at the reviews is shown unfolded: the newest one of a step that has to
// be done again.
func (v stepView) Unfold(a *machine.Attempt) bool {
	return v.Current && a == v.Progress.Newest() && a.State != machine.AttemptPassed
}

func (s *Site) session(ctx context.Context, who session.Caller, r *http.Request) (*shown, error) {
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	p.fit(r.URL.Query().Get("step"))
	title := p.Goal
	if title == "" {
		title = p.ID
	}
	return &shown{view: "session", title: title, data: p, on: p.topics()}, nil
}

// maxRelated is how many related sessions a page follows each by itself.
const maxRelated = 20

// topics are those of the session, of those that it is nested in, and of its children.
func (p *sessionPage) topics() []string {
	related := append([]*workflow.SessionInfo{p.SessionInfo}, append(slices.Clone(p.Above), p.Children...)...)
	if len(related) > maxRelated {
		return []string{store.SessionChanged}
	}
	on := []string{childrenTopic + ":" + p.ID}
	for _, i := range related {
		on = append(on, store.SessionChanged+":"+i.ID)
	}
	return on
}

func (s *Site) abortSession(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	if reason == "" {
		return "", session.Wrong(codes.ReasonNeeded, "Say why the session is aborted.")
	}
	return "/sessions/" + p.ID, s.Engine.AbortFor(ctx, p.ID, reason)
}

func (s *Site) goToStep(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	return "/sessions/" + p.ID, s.Engine.GoToFor(ctx, p.ID, r.PostForm.Get("step"))
}

// overrideStep overrides the reviews of a step as the person who looks at the page. The form says which
// outputs they saw.
func (s *Site) overrideStep(ctx context.Context, who session.Caller, r *http.Request) (string, error) {
	if !who.Has(session.RightPerson) {
		return "", session.NotNow(codes.RightNeeded, "Overriding a review needs the right person, which %s does not have: open the pages with deepwork ui, or run deepwork sessions override at a terminal.", who.Identity)
	}
	p, err := s.readSession(ctx, who, r.PathValue("id"))
	if err != nil {
		return "", err
	}
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	if reason == "" {
		return "", session.Wrong(codes.ReasonNeeded, "Say why the step may go on without its reviews; the session records it.")
	}
	return "/sessions/" + p.ID, s.Engine.OverrideFor(ctx, p.ID, r.PostForm.Get("step"),
		machine.Override{GivenFor: r.PostForm.Get("given"), Identity: who.Identity, Channel: who.Channel, Reason: reason})
}

func (s *Site) readSession(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	all, err := s.sessions(ctx, who)
	if err != nil {
		return nil, err
	}
	p := &sessionPage{engine: s.Engine}
	if p.find(all, id) {
		return p, p.read(ctx)
	}
	return s.readInWorkspace(ctx, who, id)
}

func unknownSession(id string) error {
	return session.Wrong(codes.UnknownSession, "There is no session %q here.", id)
}

// readInWorkspace reads a session of an attempt's agent. A caller that sees the attempt sees it.
func (s *Site) readInWorkspace(ctx context.Context, who session.Caller, id string) (*sessionPage, error) {
	i, err := s.Engine.Info(ctx, id)
	if err != nil || s.Board == nil || i.AttemptID == "" {
		return nil, unknownSession(id)
	}
	if _, err := s.Board.GetAttempt(ctx, who, attempt.AttemptArgs{Target: attempt.Target{AttemptID: &i.AttemptID}}); err != nil {
		return nil, unknownSession(id)
	}
	list, err := s.Engine.List(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]*workflow.SessionInfo, len(list))
	for i := range list {
		all[i] = &list[i]
	}
	p := &sessionPage{engine: s.Engine}
	if !p.find(all, id) {
		return nil, unknownSession(id)
	}
	return p, p.read(ctx)
}

// find finds a session among others, and reports whether it is there.
func (p *sessionPage) find(all []*workflow.SessionInfo, id string) bool {
	by := make(map[string]*workflow.SessionInfo, len(all))
	for _, i := range all {
		by[i.ID] = i
		if i.Parent == id {
			p.Children = append(p.Children, i)
		}
	}
	i, ok := by[id]
	if !ok {
		return false
	}
	p.SessionInfo, p.Attempt = i, i.AttemptID
	for up := i.Parent; up != "" && len(p.Above) < len(all); up = p.Above[0].Parent {
		parent, ok := by[up]
		if !ok {
			break
		}
		p.Above = slices.Insert(p.Above, 0, parent)
	}
	return true
}

// read reads the record of the session and its definition, if they can be read.
func (p *sessionPage) read(ctx context.Context) (err error) {
	if p.State, err = p.engine.Read(ctx, p.ID); err != nil {
		return err
	}
	def, err := p.engine.Definition(p.State)
	if err != nil {
		p.Fault = err.Error()
		for _, e := range p.State.StepProgress {
			p.Timeline = append(p.Timeline, []stepView{p.step(nil, e.Key)})
		}
		return nil
	}
	for _, entry := range def.Workflow.Entries {
		var group []stepView
		for _, step := range entry {
			group = append(group, p.step(def.Job.Step(step), step))
		}
		p.Timeline = append(p.Timeline, group)
	}
	return nil
}

func (p *sessionPage) step(step *job.Step, id string) stepView {
	v := stepView{Step: step, Progress: p.State.Progress(id), ID: id, Current: p.State.Status == machine.Active && p.State.IsCurrent(id)}
	if v.Reviewed() {
		v.Digest, v.Files = workflow.GivenFor(p.State, id)
		v.Answer = answerFormOf(p.engine, p.State, id)
	}
	return v
}

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
