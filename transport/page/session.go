package page

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"deepwork/catalog/job"
	"deepwork/session"
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
