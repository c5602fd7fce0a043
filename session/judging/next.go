package judging

import (
	"fmt"
	"slices"
	"strings"

	"deepwork/catalog/config"
)

// Barred returns why a call is refused before its files are read, or 0. Nothing of it was evaluated then.
func Barred(r Rules, past Past, h HandIn) Why {
	if !r.Reviews || r.Off {
		return 0
	}
	switch {
	case h.Reason != "" && r.Override == config.OverrideHuman && !h.Person && past.Grant == nil:
		return AgentMayNot
	case h.Reason != "" && r.Override == config.OverrideNever:
		return NobodyMay
	case r.Account && !h.Account && h.Reason == "" && past.Grant == nil:
		return NoAccount
	}
	return 0
}

// Next decides what a hand-in leads to (seed 000, 001.4; DESIGN "One submission" and "Reviews").
func Next(r Rules, past Past, h HandIn) Now {
	n := decision{r: r, past: past, h: h}
	if why := n.overtaken(); why != 0 {
		return Now{Do: Refuse, Why: why, Of: past.newest()}
	}

	for _, j := range r.Judges {
		if n.passesOver(j) {
			n.over = append(n.over, j.Name)
		}
	}
	by := n.inPlace()
	overridden := by != nil && (by.Kind == ByOverride || h.Misfits == "")
	if last := past.newest(); last.Running() && n.isFor(last) && (!overridden || last.With() == ByProgram) {
		return n.now(Await, last.With(), last)
	}
	if h.Misfits != "" {
		n.verdicts = append(n.verdicts, &Verdict{Kind: ByShape, At: h.At, Digest: h.Content, Feedback: h.Misfits})
	}
	if overridden || h.Misfits == "" {
		if now, over := n.programs(by); over {
			return now
		}
	}
	if overridden {
		n.verdicts = append(n.verdicts, by)
		return n.person(by)
	}

	n.others = past.Grant != nil && r.Override != config.OverrideNever
	if h.Misfits != "" {
		return n.refuse(Unfit, past.unfit(h.Content))
	}
	return n.reviewers()
}

// A decision is Next in progress.
type decision struct {
	r        Rules
	past     Past
	h        HandIn
	verdicts []*Verdict
	over     []string
	ends     *RoundEnd
	number   int
	others   bool
}

func (n *decision) now(do Action, with Kind, of *Submission) Now {
	return Now{
		Do: do, With: with, Of: of, Number: n.number, Verdicts: n.verdicts, Over: n.over, Ends: n.ends,
		Others: n.others,
	}
}

func (n *decision) refuse(why Why, of *Submission) Now {
	now := n.now(Refuse, "", of)
	now.Why = why
	return now
}

func (p Past) newest() *Submission {
	if len(p.Submissions) == 0 {
		return nil
	}
	return p.Submissions[len(p.Submissions)-1]
}

// By returns the submission with this id, or nil.
func (p Past) By(id int64) *Submission {
	for _, s := range p.Submissions {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// same returns the newest submission if a hand-in is the same and something may still become of it, or nil.
func (p Past) same(h HandIn) *Submission {
	if s := p.newest(); s != nil && s.EndedAt == nil && s.Content == h.Content && s.Bound == h.Bound {
		return s
	}
	return nil
}

// unfit returns the newest submission if it has this content, which does not satisfy its schemas, or nil.
func (p Past) unfit(content string) *Submission {
	if s := p.newest(); s != nil && s.Content == content && s.FailedBy(ByShape) {
		return s
	}
	return nil
}

// latest returns the newest submission that was with a judge of this kind, if it has this content and what was said
// counts, or nil.
func (p Past) latest(with Kind, content string) *Submission {
	for _, s := range slices.Backward(p.Submissions) {
		if s.LastTurn(with) == nil {
			continue
		}
		if s.Content != content || s.Void != nil || s.Imported {
			return nil
		}
		return s
	}
	return nil
}

// FailedTries returns the number of failed tries, which is limited.
func (p Past) FailedTries() (n int) {
	for _, s := range p.Submissions {
		if s.Failed() {
			n++
		}
	}
	return n
}

// LastTry returns the newest try with a verdict, or nil.
func (p Past) LastTry() *Submission {
	for _, s := range slices.Backward(p.Submissions) {
		if s.Counts() {
			return s
		}
	}
	return nil
}

// isFor reports whether a submission that is judged is the one of the hand-in. A repetition that only waits for
// checks goes on although what they are about has changed since.
func (n *decision) isFor(s *Submission) bool {
	return s.Content == n.h.Content && (s.Bound == n.h.Bound || s.With() == ByReviewer || n.h.Only)
}

// overtaken returns why a call that has waited for a submission cannot go on, or 0.
func (n *decision) overtaken() Why {
	if n.h.Waited == 0 {
		return 0
	}

	waited, last := n.past.By(n.h.Waited), n.past.newest()
	switch {
	case n.h.Only && waited != nil && waited.Content != n.h.Content:
		return Changed
	case last == nil:
		return MovedOn
	case last != waited && last.Content != n.h.Content:
		return Superseded
	case last.Void != nil && !last.Void.NotBegun && (last == waited || last.Bound == n.h.Bound):
		return NoVerdict
	}
	return 0
}

// waited reports whether the call may be told what became of a submission: none was told yet, or it waited for it.
func (n *decision) waited(s *Submission) bool {
	return !s.Told || n.h.Waited == s.ID || n.h.Only
}

// inPlace returns the verdict that stands for those of reviewers, or nil: a person has overridden them, or the
// agent says why it skips them, and may. A reason that was given with the same submission counts on.
func (n *decision) inPlace() *Verdict {
	g, r, h := n.past.Grant, n.r, n.h
	v := &Verdict{At: h.At, By: h.Identity, Channel: h.Channel, Digest: h.Content, Passed: true, Feedback: h.Reason}
	of := n.past.same(h)
	switch given := of.Standing(); {
	case g != nil && r.Override != config.OverrideNever &&
		slices.Contains([]string{"", h.Content, h.Bound}, g.GivenFor):
		v.Kind, v.At, v.By, v.Channel = ByOverride, g.At, g.Identity, g.Channel
		v.Feedback, v.GivenFor = g.Reason, g.GivenFor
	case given != nil && h.Reason == "" && r.Override != config.OverrideNever &&
		(given.Kind == ByOverride || (given.Kind == ByReason || given.Kind == BySelf) &&
			r.Override != config.OverrideHuman && r.Reviews && !r.Off):
		return given
	case h.Reason == "", r.Override == config.OverrideNever, r.Override == config.OverrideHuman && !h.Person:
		return nil // a person has overridden nothing, or other outputs
	case h.Person:
		v.Kind = ByOverride
	case !r.Reviews || r.Off:
		return nil
	case !r.External && r.Refused == nil && n.past.latest(BySelf, h.Content) != nil:
		v.Kind = BySelf
	default:
		v.Kind = ByReason
	}
	return v
}

// programs decides about the checks. over is false if each has passed the content, or a person passes over it.
func (n *decision) programs(by *Verdict) (now Now, over bool) {
	last, same := n.past.newest(), n.past.same(n.h)
	toTell := last != nil && last.Bound == n.h.Bound && n.waited(last)
	missing := false
	for _, j := range n.r.Judges {
		if j.Kind != ByProgram {
			continue
		}
		if n.passesOver(j) {
			if j.Ends {
				n.ends = &RoundEnd{Passed: true}
			}
			continue
		}
		v, of := n.past.checked(j)
		own := of != nil && of == same
		if v == nil || !v.Passed && j.Again && !own && !(toTell && of == last) {
			missing = true // the cause of a failure may be in other files, which nobody has looked at
			continue
		}
		if !own && !v.Reused {
			v = v.reused()
		}
		n.verdicts = append(n.verdicts, v)
		if j.Ends {
			n.ends = &RoundEnd{Passed: v.Passed, Why: v.Feedback}
		}
	}

	failed := slices.ContainsFunc(n.verdicts, func(v *Verdict) bool { return v.Kind == ByProgram && v.Fails() })
	waited := n.past.By(n.h.Waited)
	switch {
	case missing && n.h.Only && waited.checkedOnly() && waited.Bound != n.h.Bound:
		return n.refuse(Changed, last), true
	case missing:
		if by != nil {
			n.verdicts = append(n.verdicts, by)
		}
		return n.now(Run, ByProgram, same), true
	case failed:
		return n.refuse(ChecksFailed, n.past.failedOf(n.h)), true
	}
	return now, false
}

// checkedOnly reports whether a submission was with no judges but programs. s may be nil.
func (s *Submission) checkedOnly() bool {
	return s != nil && s.LastTurn(ByReviewer) == nil && s.LastTurn(ByPerson) == nil
}

// passesOver reports whether a person passes over a check. A reason that is given in a call passes over none.
func (n *decision) passesOver(j Judge) bool {
	g := n.past.Grant
	return j.Kind == ByProgram && !j.Never && g != nil && (g.GivenFor == "" || g.GivenFor == n.h.Bound) &&
		n.r.Override != config.OverrideNever
}

// failedOf returns the newest submission that programs have failed with exactly the content of a hand-in, or nil.
func (p Past) failedOf(h HandIn) *Submission {
	for _, s := range slices.Backward(p.Submissions) {
		if s.Bound == h.Bound && s.Content == h.Content && s.FailedBy(ByProgram) {
			return s
		}
	}
	return nil
}

// checked returns the newest result of a check for exactly this content, with its submission, or nil. Results
// from before go_to_step count, so that beginning a step again does not give another try; imported ones do not.
func (p Past) checked(j Judge) (*Verdict, *Submission) {
	for _, s := range slices.Backward(p.Submissions) {
		for _, v := range slices.Backward(s.Verdicts) {
			if v.Kind == ByProgram && !s.Imported && v.Key == j.Key && v.Digest == j.Digest {
				return v, s
			}
		}
	}
	for _, v := range slices.Backward(p.Withdrawn) {
		if v.Key == j.Key && v.Digest == j.Digest {
			return v, nil
		}
	}
	return nil, nil
}

// reused returns a copy of a verdict for another submission with the same content.
func (v *Verdict) reused() *Verdict {
	n := *v
	n.Reused = true
	return &n
}

// reviewers decides about the reviews by others than people.
func (n *decision) reviewers() Now {
	r, h := n.r, n.h
	asked := n.past.latest(ByPerson, h.Content)
	due := slices.ContainsFunc(r.Judges, func(j Judge) bool { return j.Kind == ByReviewer })
	switch {
	case !r.Reviews:
		return n.person(nil)
	case asked != nil: // its other reviews have passed these outputs
		n.take(asked, append(slices.Clone(inPlace), ByReviewer)...)
		return n.person(nil)
	case r.Off, !due:
		kind := NotDue
		if r.Off {
			kind = Off
		}
		n.verdicts = append(n.verdicts, &Verdict{
			Kind: kind, At: h.At, By: h.Identity, Channel: h.Channel, Digest: h.Content, Passed: true,
		})
		return n.person(nil)
	case r.Refused != nil:
		return n.refuse(NotReviewed, nil)
	case !r.External:
		now := n.refuse(SelfReview, n.past.same(h))
		now.With = BySelf
		return now
	}
	return n.external(n.past.latest(ByReviewer, h.Content))
}

// take adds the verdicts of these kinds of an earlier submission, whose try goes on.
func (n *decision) take(of *Submission, kinds ...Kind) {
	if !of.Failed() {
		n.number = of.Number
	}
	for _, kind := range kinds {
		n.verdicts = append(n.verdicts, of.All(kind)...)
	}
}

// external decides about the reviews by an external reviewer (seed 000, 001.4.8 to 001.4.13). of is the newest
// submission that reviewers had, if it has this content, or nil.
func (n *decision) external(of *Submission) Now {
	failed := n.past.FailedTries()
	if of.Reviewed() && n.waited(of) {
		n.take(of, ByReviewer)
		switch {
		case !of.Failed():
			return n.person(nil)
		case failed >= n.r.MaxTries:
			return n.refuse(UsedUp, of)
		}
		return n.refuse(ReviewFailed, of)
	}
	if last := n.past.LastTry(); failed >= n.r.MaxTries && last != nil && last.Failed() &&
		last.Content == n.h.Content {
		return n.refuse(UsedUpBefore, last)
	}

	missing := false
	for _, j := range n.r.Judges {
		if j.Kind != ByReviewer {
			continue
		}
		if v := n.past.passed(j); v != nil {
			n.verdicts = append(n.verdicts, v.reused())
		} else {
			missing = true
		}
	}
	if missing {
		same := n.past.same(n.h)
		if same.Reviewed() {
			same = nil // each review of unchanged outputs is a try of its own
		}
		return n.now(Run, ByReviewer, same)
	}
	return n.person(nil)
}

// passed returns a reviewer's verdict that passes exactly this content, or nil. Imported ones do not count.
func (p Past) passed(j Judge) *Verdict {
	for _, s := range slices.Backward(p.Submissions) {
		for _, v := range s.Verdicts {
			if v.Kind == ByReviewer && !s.Imported && v.Passed && v.Key == j.Key && v.Digest == j.Digest {
				return v
			}
		}
	}
	return nil
}

// person decides about the review by a person, once the others are done or overridden: by is the verdict in their
// place, or nil. Only a person's override skips it.
func (n *decision) person(by *Verdict) Now {
	asks := slices.ContainsFunc(n.r.Judges, func(j Judge) bool { return j.Kind == ByPerson })
	if !asks || by != nil && by.Kind == ByOverride {
		return n.move(by)
	}

	of := n.past.latest(ByPerson, n.h.Content)
	switch v := of.Of(ByPerson); {
	case v != nil && v.Passed:
		n.verdicts = append(n.verdicts, v)
		return n.move(by)
	case v != nil && !n.asksAgain(of):
		if n.past.FailedTries() >= n.r.MaxTries {
			return n.refuse(UsedUp, of)
		}
		return n.refuse(ReviewFailed, of)
	}
	return n.now(Await, ByPerson, n.past.same(n.h))
}

// move finishes the step. If that uses up the rounds, a person first says how to go on: only their override skips
// this.
func (n *decision) move(by *Verdict) Now {
	same := n.past.same(n.h)
	var end RoundEnd
	if n.ends != nil {
		end = *n.ends
	}
	if n.r.LastRound == "" || end.Passed || by != nil && by.Kind == ByOverride {
		return n.now(Move, "", same)
	}

	v := n.past.latest(ByPerson, n.h.Content).Of(OnRounds)
	if v == nil {
		now := n.now(Await, ByPerson, same)
		now.About = strings.TrimSpace(n.r.LastRound + ". " + end.Why)
		return now
	}
	n.verdicts = append(n.verdicts, v)
	if !v.Passed {
		end.More = strings.TrimSpace(fmt.Sprintf("A person (%s, %s) asks for one more round. %s", v.By, v.Channel,
			v.Feedback))
		n.ends = &end
	}
	return n.now(Move, "", same)
}

// asksAgain reports whether to ask a person again who has failed a step that hands in nothing, as the agent was
// told: its corrections show nowhere.
func (n *decision) asksAgain(of *Submission) bool {
	return len(n.h.Files) == 0 && of.Told && n.h.Waited != of.ID && !n.h.Only
}

// Text returns a reason as a person or an agent has given it, without blanks around it.
func Text(reason *string) string {
	if reason == nil {
		return ""
	}
	return strings.TrimSpace(*reason)
}
