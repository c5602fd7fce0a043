package judging

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// FuzzNext checks for random pasts, rules and hand-ins that deciding does not panic, that equal arguments lead to
// the same, and that no step is finished which a judge of its rules has not passed, unless somebody who may passes
// over that judge.
func FuzzNext(f *testing.F) {
	for seed := range uint64(500) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r, p, h := situation(seed)
		got := Next(r, p, h)
		testkit.Equal(t, Next(situation(seed)).String(), got.String(), "for the same again")
		r2, p2, h2 := situation(seed)
		testkit.True(t, reflect.DeepEqual([]any{r, p, h}, []any{r2, p2, h2}), "deciding has changed its arguments")

		if got.Do == Move {
			for _, j := range r.Judges {
				testkit.True(t, mayPass(r, p, h, j), "%s %q has not passed: %v", j.Kind, j.Key, got)
			}
		}
	})
}

// mayPass reports whether a step may be finished as far as a judge is concerned.
func mayPass(r Rules, p Past, h HandIn, j Judge) bool {
	ruled := r.Override != config.OverrideNever
	granted := ruled && p.Grant != nil && slices.Contains([]string{"", h.Content, h.Bound}, p.Grant.GivenFor)
	byHuman := granted || ruled && h.Person && h.Reason != ""
	byAgent := h.Reason != "" && r.Reviews && !r.Off && r.Override == config.OverrideAgent
	said := func(kinds ...Kind) bool { // for exactly this content
		return slices.ContainsFunc(p.Submissions, func(s *Submission) bool {
			return !s.Imported && s.Content == h.Content && slices.ContainsFunc(s.Verdicts, func(v *Verdict) bool {
				return slices.Contains(kinds, v.Kind) && v.Passed
			})
		})
	}
	switch j.Kind {
	case ByProgram:
		passed := func(v *Verdict) bool { return v.Key == j.Key && v.Digest == j.Digest && (v.Passed || j.Ends) }
		return slices.ContainsFunc(p.Withdrawn, passed) || granted && !j.Never && p.Grant.GivenFor != h.Content ||
			slices.ContainsFunc(p.Submissions, func(s *Submission) bool {
				return !s.Imported && slices.ContainsFunc(s.All(ByProgram), passed)
			})
	case ByReviewer:
		passed := func(v *Verdict) bool { return v.Key == j.Key && v.Digest == j.Digest && v.Passed }
		return r.Off || !r.Reviews || byHuman || byAgent || ruled && said(ByOverride, ByReason, BySelf) ||
			said(ByPerson) || // who was asked after all reviews
			slices.ContainsFunc(p.Submissions, func(s *Submission) bool {
				return !s.Imported && slices.ContainsFunc(s.All(ByReviewer), passed)
			})
	}
	return byHuman || said(ByPerson) || ruled && said(ByOverride)
}

// situation returns random arguments of Next.
func situation(seed uint64) (Rules, Past, HandIn) {
	g := rand.New(rand.NewPCG(seed, 1))
	one := func(in int) bool { return g.IntN(in) == 0 }
	contents := [][2]string{{"c1", "b1"}, {"c1", "b9"}, {"c2", "b2"}}
	judges := []Judge{lint, strict, loose, until, again, review, second, person}
	judges = slices.DeleteFunc(judges, func(Judge) bool { return one(2) })

	var all []*Submission
	for range g.IntN(4) {
		c := contents[g.IntN(len(contents))]
		s := wasWith(c[0], c[1])
		switch g.IntN(8) {
		case 0:
			s.with(BySelf)
		case 1:
			s.instead([]Kind{ByReason, BySelf, ByOverride, Off, NotDue}[g.IntN(5)])
		case 2:
			s.unfit()
		}
		for _, kind := range []Kind{ByProgram, ByReviewer, ByPerson} {
			if s.EndedAt != nil || s.With() != "" || one(5) {
				break
			}
			if due := slices.ContainsFunc(judges, func(j Judge) bool { return j.Kind == kind }); due && one(3) {
				s.with(kind)
				break
			}
			for _, j := range judges {
				if j.Kind == kind && !(kind == ByReviewer && s.Standing() != nil) {
					s.judged(j, !one(4))
				}
			}
		}
		switch g.IntN(8) {
		case 0:
			s = s.void(one(2))
		case 1:
			s = s.imported()
		}
		s.Told = s.Told || one(2)
		all = append(all, s)
	}
	p := past(all...)
	if one(4) {
		p = p.granted([]string{"", "c1", "b1", "c2"}[g.IntN(4)])
	}
	if one(4) {
		p = p.withdrawn(lint, one(2))
	}

	r := rules(judges...)
	r.External, r.Off = !one(3), one(6)
	r.Override = []config.Override{config.OverrideAgent, config.OverrideHuman, config.OverrideNever}[g.IntN(3)]
	if one(6) {
		r.Refused = errors.New("not approved")
	}
	c := contents[g.IntN(len(contents))]
	h := handIn(func(h *HandIn) {
		h.Content, h.Bound, h.Person, h.Only, h.Waited = c[0], c[1], one(4), one(4), int64(max(0, g.IntN(6)-2))
	})
	if one(3) {
		reason(&h)
	}
	if one(6) {
		misfit(&h)
	}
	if one(4) {
		nothing(&h)
	}
	return r.forContent(c[0], c[1]), p, h
}
