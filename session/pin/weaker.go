package pin

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"deepwork/catalog/job"
	"deepwork/session/machine"
)

// A loss is what an edit takes from the steps of a session that are still to do, in words.
type loss struct {
	reviews []string
	checks  []string // and schemas
}

// compare returns in what way a definition reviews and checks the session's unfinished steps less strictly than an
// earlier one. Added checks are no loss.
func compare(s *machine.State, was, now *machine.Definition) (all loss) {
	here := max(0, now.Workflow.Find(s.CurrentStepID))
	for i, entry := range was.Workflow.Entries {
		for _, id := range entry {
			if s.HadTurn(was, now, i, id) {
				continue
			}

			st, of, at := was.Job.Step(id), now.Job.Step(id), now.Workflow.Find(id)
			var l loss
			switch {
			case st.Call != nil:
				l = within(st, of, was, now)
				if at < here {
					l.checks = gone(id, "is a workflow")
				}
			case at < here:
				if len(st.Reviews) > 0 {
					l.reviews = gone(id, "has reviews")
				}
				if len(st.Checks) > 0 || st.HasSchema() {
					l.checks = gone(id, "has checks")
				}
			default:
				group, form := now.Workflow.Entries[at], now.Workflow.Form(at)
				follows := (form == nil || form.ForEach == nil) && id == entry[0] && id != group[0]
				if len(st.Reviews) > 0 && follows && len(of.ReviewsBy(true))+len(of.Checks) == 0 {
					l.reviews = append(l.reviews, fmt.Sprintf(
						"step '%s', which has reviews, need not be reported, since it is in a group now", id))
				}
				for _, r := range st.Reviews {
					l.reviews = append(l.reviews, weakerReview(st, of, r)...)
				}
				l.checks = weakerChecks(st, of, len(entry) == 1 && len(group) > 1)
			}
			all.reviews, all.checks = append(all.reviews, l.reviews...), append(all.checks, l.checks...)
		}
	}
	return all
}

func gone(id, what string) []string {
	return []string{fmt.Sprintf("step '%s', which %s, is gone from what is still to do", id, what)}
}

// within compares two versions of the workflow that a step is, if it belongs to the same job.
func within(st, of *job.Step, was, now *machine.Definition) (l loss) {
	if of == nil || of.Call == nil || of.Call.String() != st.Call.String() ||
		st.Call.Job != "" && st.Call.Job != was.Job.Name {
		return l
	}
	return compare(new(machine.State), machine.Define(was.Job, st.Call.Workflow),
		machine.Define(now.Job, st.Call.Workflow))
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
		if *cmp.Or(n.Guidance, new("")) != *cmp.Or(r.Guidance, new("")) {
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

// weakerChecks returns how the checks and schemas of a step are weaker than they were.
func weakerChecks(was, now *job.Step, grouped bool) (what []string) {
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
