package machine

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/job"
)

// Pinned says how the steps of a session were to be reviewed when it began.
type Pinned struct {
	Reviewer   string          `json:"reviewer"` // a constant below, or the words of a command as a JSON list
	Override   config.Override `json:"override"`
	Pin        bool            `json:"pin"`        // the session ignores an edit that weakens its reviews
	Definition DefinitionRef   `json:"definition"` // with the criteria
}

// The values of Pinned.Reviewer that are not commands.
const (
	ReviewerSelf     = "self"     // the agent itself
	ReviewerClaude   = "claude"   // the claude command line
	ReviewerWithheld = "withheld" // a command of the project that the user has not approved
	ReviewerOff      = "off"      // steps are finished without reviews
)

// A Weakening is an edit that removed or weakened reviews before a step was finished.
type Weakening struct {
	At   time.Time `json:"at"`
	Step string    `json:"step"` // the finished step
	What []string  `json:"what"`
}

// WeakerReviewer returns how a reviewer is weaker than the pinned one, or "".
func (p *Pinned) WeakerReviewer(now string) string {
	switch {
	case p.Reviewer == now || p.Reviewer == ReviewerOff:
		return ""
	case p.Reviewer == ReviewerSelf && now != ReviewerOff,
		p.Reviewer == ReviewerWithheld && now != ReviewerOff && now != ReviewerSelf:
		return ""
	}
	return fmt.Sprintf("the reviewer was %s, and is %s", p.Reviewer, now)
}

// Weaker returns in what way a definition reviews the session's unfinished steps less strictly than an
// earlier one.
func (s *State) Weaker(was, now *Definition) (what []string) {
	for i, entry := range was.Workflow.Entries {
		for _, id := range entry {
			st, at := was.Job.Step(id), now.Workflow.Find(id)
			if len(st.Reviews) == 0 && st.Call == nil || s.hadTurn(was, now, i, id) {
				continue
			}
			what = append(what, within(st, was, now, (*State).Weaker)...)
			if st.Call != nil {
				continue
			}
			if at < 0 || at < now.Workflow.Find(s.CurrentStepID) {
				what = append(what, fmt.Sprintf("step '%s', which has reviews, is gone from what is still to do", id))
				continue
			}
			of := now.Job.Step(id)
			if forEach(now, at) == nil && id == entry[0] && id != now.Workflow.Entries[at][0] &&
				len(of.ReviewsBy(true))+len(of.Checks) == 0 {
				what = append(what,
					fmt.Sprintf("step '%s', which has reviews, need not be reported, since it is in a group now", id))
			}
			for _, r := range st.Reviews {
				what = append(what, weakerReview(st, of, r)...)
			}
		}
	}
	return what
}

// hadTurn reports whether a step of an earlier definition, in the entry at this index, is finished or no
// longer due.
func (s *State) hadTurn(was, now *Definition, index int, id string) bool {
	at, p := now.Workflow.Find(id), s.Progress(id)
	return p.Done() || p != nil && p.Unreported ||
		at >= 0 && at < now.Workflow.Find(s.CurrentStepID) && s.passedBy(now, at) && s.passedBy(was, index) &&
			index < s.reached(was)
}

// within compares two versions of the workflow that a step is, if it belongs to the same job.
func within(st *job.Step, was, now *Definition, compare func(s *State, was, now *Definition) []string) []string {
	of := now.Job.Step(st.ID)
	if st.Call == nil || of == nil || of.Call == nil || of.Call.String() != st.Call.String() ||
		st.Call.Job != "" && st.Call.Job != was.Job.Name {
		return nil
	}
	return compare(new(State), Define(was.Job, st.Call.Workflow), Define(now.Job, st.Call.Workflow))
}

// weakerReview returns how the best counterpart of a review is weaker than it.
func weakerReview(was, now *job.Step, r job.Review) (best []string) {
	of := fmt.Sprintf("step '%s', review of %s: ", was.ID, r.RunEach)
	for _, n := range now.Reviews {
		if n.RunEach != r.RunEach {
			continue
		}

		what := []string{}
		for _, c := range r.Criteria {
			switch i := slices.IndexFunc(n.Criteria, func(o job.Criteria) bool { return o.Name == c.Name }); {
			case i < 0:
				what = append(what, of+fmt.Sprintf("the criterion %q is gone", c.Name))
			case n.Criteria[i] != c:
				what = append(what, of+fmt.Sprintf("the criterion %q was changed", c.Name))
			}
		}
		if r.ByHuman && !n.ByHuman {
			what = append(what, of+"it is no longer by a person")
		}
		if n.Together != r.Together || n.Brief != r.Brief || n.OtherOutputs != r.OtherOutputs {
			what = append(what, of+"its strategy, context or depth was changed")
		}
		if guidance(n) != guidance(r) {
			what = append(what, of+"its guidance was changed")
		}
		if o, p := was.Output(r.RunEach), now.Output(r.RunEach); o != nil && o.Required && (p == nil || !p.Required) {
			what = append(what, of+"the output is no longer required")
		}
		if best == nil || len(what) < len(best) {
			best = what
		}
	}
	if best == nil {
		best = []string{of + "it is gone"}
	}
	return best
}

// LessChecked returns in what way a definition checks the session's unfinished steps less strictly than an
// earlier one, by checks and schemas. Added checks are not reported.
func (s *State) LessChecked(was, now *Definition) (what []string) {
	here := now.Workflow.Find(s.CurrentStepID)
	for i, entry := range was.Workflow.Entries {
		for _, id := range entry {
			st := was.Job.Step(id)
			hasSchema := slices.ContainsFunc(st.Outputs, func(o job.Output) bool {
				return o.Schema.File != "" || o.Schema.JSON != nil
			})
			switch at := now.Workflow.Find(id); {
			case len(st.Checks) == 0 && !hasSchema && st.Call == nil, s.hadTurn(was, now, i, id):
			case (at < 0 || at < here) && st.Call != nil:
				what = append(what, fmt.Sprintf("step '%s', which is a workflow, is gone from what is still to do", id))
			case at < 0, at < here:
				what = append(what, fmt.Sprintf("step '%s', which has checks, is gone from what is still to do", id))
			case st.Call != nil:
				what = append(what, within(st, was, now, (*State).LessChecked)...)
			default:
				what = append(what, lessChecked(st, now.Job.Step(id),
					len(entry) == 1 && len(now.Workflow.Entries[at]) > 1)...)
			}
		}
	}
	return what
}

// passedBy reports whether the steps of an entry need not be done, because its condition does not hold or its
// items are done or dropped.
func (s *State) passedBy(def *Definition, index int) bool {
	if forEach(def, index) == nil {
		return s.leftOut(def, index)
	}

	all := s.byID()
	for i := range s.items(def, index) {
		if all.pending(def.Workflow.Entries[index], i) != nil {
			return false
		}
	}
	return true
}

// reached returns the index of the session's current entry in an earlier definition. If that lacks the
// current step, it is the entry after the finished ones.
func (s *State) reached(was *Definition) int {
	if at := was.Workflow.Find(s.CurrentStepID); at >= 0 {
		return at
	}

	last := -1
	for _, p := range s.StepProgress {
		if p.Value.Done() {
			last = max(last, was.Workflow.Find(p.Key))
		}
	}
	return s.skip(was, last+1)
}

func lessChecked(was, now *job.Step, grouped bool) (what []string) {
	of := fmt.Sprintf("step '%s': ", was.ID)
	for _, c := range was.Checks {
		i := slices.IndexFunc(now.Checks, func(n job.StepCheck) bool { return n.Name == c.Name })
		switch {
		case i < 0:
			what = append(what, of+fmt.Sprintf("the check %q is gone", c.Name))
		case !reflect.DeepEqual(now.Checks[i], c):
			what = append(what, of+fmt.Sprintf("the check %q was changed", c.Name))
		case grouped && c.Files == nil:
			what = append(what,
				of+fmt.Sprintf("the check %q is bound to the outputs alone, since the step is in a group now", c.Name))
		}
	}
	for _, o := range was.Outputs {
		switch n := now.Output(o.Name); {
		case o.Schema.File == "" && o.Schema.JSON == nil:
		case n == nil || n.Schema.File != o.Schema.File ||
			o.Schema.File == "" && !bytes.Equal(n.Schema.JSON, o.Schema.JSON):
			what = append(what, of+fmt.Sprintf("the schema of the output '%s' was dropped or changed", o.Name))
		case o.Required && !n.Required:
			what = append(what, of+fmt.Sprintf("the output '%s', which has a schema, is no longer required", o.Name))
		}
	}
	return what
}

func guidance(r job.Review) string {
	if r.Guidance == nil {
		return ""
	}
	return *r.Guidance
}

// weaken records how the reviews are weaker than the pinned ones, unless that is already recorded. s is being
// made.
func (s *State) weaken(stepID string, what []string, at time.Time) {
	what = slices.DeleteFunc(slices.Clone(what), func(text string) bool {
		return slices.ContainsFunc(s.Weakened, func(w Weakening) bool { return slices.Contains(w.What, text) })
	})
	if len(what) > 0 {
		s.Weakened = append(slices.Clone(s.Weakened), Weakening{at, stepID, what})
	}
}
