package page

import (
	"cmp"
	"context"
	"slices"

	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/run"
	"deepwork/session/workflow"
)

// A decision is a card: a step that waits for a person, what they decide about, and what was said last. It is about
// outputs to pass, used up rounds, or reviews to override.
type decision struct {
	session.AwaitingStep
	Title, Digest, About, Notes string
	Definition                  *job.Step // nil if it cannot be read

	Files    []judging.FileHash
	Criteria []job.Criteria
	Said     []part       // by its judges
	Shown    []handedFile // empty if the page only links to the files
	Gone     []string     // files that only an earlier hand-in had
}

// The bounds of a page: how many cards it has, how many of them show files, and how many bytes these have together,
// about.
const (
	maxDecisions = 20
	maxHandIns   = 5
	maxHandedIn  = 400 << 10
)

// decide adds the cards of the steps that wait for a person.
func (s *Site) decide(ctx context.Context, who session.Caller, p *workPage) error {
	all, err := s.sessions(ctx)
	if err != nil {
		return err
	}
	sessions := map[string]bool{}
	p.Steps.Tree.Each(func(x *run.Step, _ int) { sessions[x.SessionID] = true })
	waits := map[string][]session.AwaitingStep{}
	for _, i := range all {
		if i.Waiting != "" && sessions[i.ID] {
			if waits[i.ID], err = s.Engine.AwaitingIn(ctx, i.Session); err != nil {
				return err
			}
		}
	}
	forms, room := maxHandIns, maxHandedIn
	if p.Changes || p.Of != "" || !who.Has(session.RightPerson) {
		forms = 0
	}
	add := func(x *run.Step) {
		i := slices.IndexFunc(waits[x.SessionID], func(w session.AwaitingStep) bool { return w.Step == x.ID })
		if i < 0 || !x.Current() {
			return
		}
		if len(p.Decisions) == maxDecisions {
			p.Undecided++
			return
		}
		d := decisionOf(x, waits[x.SessionID][i])
		p.Decisions = append(p.Decisions, d)
		if forms == 0 || room <= 0 {
			return
		}

		handIn := s.Engine.HandIn
		if !d.Review {
			handIn = s.Engine.LastHandIn
		}
		h, err := handIn(ctx, x.SessionID, x.ID)
		if err == nil && (h.Digest == d.Digest || !d.Review) { // else it has moved on, and so will the page
			forms--
			room -= d.show(h, room)
		}
	}
	for _, first := range []bool{true, false} {
		p.Steps.Tree.Each(func(x *run.Step, _ int) {
			if (x.ID == p.First) == first {
				add(x)
			}
		})
	}
	return nil
}

// decisionOf returns the card of a step that waits for a person.
func decisionOf(x *run.Step, w session.AwaitingStep) *decision {
	u := x.Progress.Handed()
	d := &decision{
		AwaitingStep: w,
		Title:        cmp.Or(w.Why.Sentence(), "Step "+x.ID+": only a person may pass over its review."),
		Said:         verdicts(u),
		Definition:   x.Definition,
	}
	if !w.Review {
		d.Digest, d.Files = workflow.GivenFor(x.Session, x.ID)
	} else if q, err := x.Session.ToAnswer(x.ID, ""); err == nil { // else a person has answered meanwhile
		u = q
		d.Digest, d.Files, d.About = q.Content, q.Files, q.Turn().About
	}
	if u != nil {
		d.Notes = board.OrEmpty(u.Notes)
	}
	if d.About == "" && x.Definition != nil {
		for _, r := range x.Definition.ReviewsBy(w.Review) {
			d.Criteria = append(d.Criteria, r.Criteria...)
		}
	}
	return d
}
