package judging

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// The content that is handed in is "c1", with "b1" of what the checks are about, unless a row says otherwise. A
// program's verdict is for Bound, or for Content if its failure stands only until told; others are for Content.

var (
	lint   = Judge{Kind: ByProgram, Key: "lint", Name: "lint"}
	unit   = Judge{Kind: ByProgram, Key: "unit", Name: "unit"}
	strict = Judge{Kind: ByProgram, Key: "strict", Name: "strict", Never: true}
	loose  = Judge{Kind: ByProgram, Key: "loose", Name: "loose", Again: true}
	until  = Judge{Kind: ByProgram, Key: "until", Name: "until", Ends: true}
	again  = Judge{Kind: ByProgram, Key: "again", Name: "again", Ends: true, Again: true}
	review = Judge{Kind: ByReviewer, Key: "review"}
	second = Judge{Kind: ByReviewer, Key: "second"}
	person = Judge{Kind: ByPerson, Key: "person"}
)

var testTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// rules returns rules by which the reviewers are external, agents may override, and two tries may fail.
func rules(judges ...Judge) Rules {
	return Rules{
		Judges:   judges,
		Reviews:  slices.ContainsFunc(judges, func(j Judge) bool { return j.Kind == ByReviewer }),
		External: true,
		MaxTries: 2,
		Override: config.OverrideAgent,
	}
}

func (r Rules) self() Rules {
	r.External = false
	return r
}

func (r Rules) human() Rules {
	r.Override = config.OverrideHuman
	return r
}

func (r Rules) never() Rules {
	r.Override = config.OverrideNever
	return r
}

func (r Rules) off() Rules {
	r.Off = true
	return r
}

func (r Rules) account() Rules {
	r.Account = true
	return r
}

// last are rules by which this ends the last round, unless a program ends the rounds.
func (r Rules) last() Rules {
	r.LastRound = "round 2 of 2 is over"
	return r
}

func (r Rules) refused() Rules {
	r.Refused = errors.New("not approved")
	return r
}

// notDue are rules with reviews of which none applies to the outputs.
func notDue(judges ...Judge) Rules {
	r := rules(judges...)
	r.Reviews = true
	return r
}

// forContent fills in what the judges judge.
func (r Rules) forContent(content, bound string) Rules {
	r.Judges = slices.Clone(r.Judges)
	for i, j := range r.Judges {
		r.Judges[i].Digest = j.of(content, bound)
	}
	return r
}

func (j Judge) of(content, bound string) string {
	if j.Kind == ByProgram && !j.Again {
		return j.Key + "@" + bound
	}
	return j.Key + "@" + content
}

// handIn returns a call with the content c1.
func handIn(edits ...func(*HandIn)) HandIn {
	h := HandIn{
		At:       testTime,
		Identity: "agent",
		Content:  "c1",
		Bound:    "b1",
		Files:    []FileHash{{Path: "report.md", SHA256: "c1"}},
	}
	for _, edit := range edits {
		edit(&h)
	}
	return h
}

func reason(h *HandIn)   { h.Reason = "it is trivial" }
func byHuman(h *HandIn)  { h.Person = true }
func accounts(h *HandIn) { h.Account = true }
func misfit(h *HandIn)   { h.Misfits = "report: expected an object" }
func only(h *HandIn)     { h.Only = true }
func nothing(h *HandIn)  { h.Files = nil }
func edited(h *HandIn) {
	h.Content, h.Bound, h.Files = "c2", "b2", []FileHash{{Path: "report.md", SHA256: "c2"}}
}

func elsewhere(h *HandIn) { h.Bound = "b9" } // what the checks are about has changed, the outputs have not

func waited(id int64) func(*HandIn) { return func(h *HandIn) { h.Waited = id } }

// past returns what was handed in before, with ids from 1.
func past(all ...*Submission) (p Past) {
	for i, s := range all {
		s.ID = int64(i + 1)
		if i < len(all)-1 && s.EndedAt == nil {
			all[i] = s.ended()
		}
	}
	p.Submissions = all
	return p
}

func (p Past) granted(givenFor string) Past {
	p.Grant = &Override{At: testTime, Identity: "Ada", Reason: "good enough", GivenFor: givenFor}
	return p
}

// withdrawn adds a verdict of a check on the content c1 from before go_to_step.
func (p Past) withdrawn(j Judge, passed bool) Past {
	p.Withdrawn = append(p.Withdrawn, &Verdict{Kind: ByProgram, Key: j.Key, Digest: j.of("c1", "b1"), Passed: passed})
	return p
}

// was returns a submission of the content c1 that nobody has judged.
func was() *Submission { return wasWith("c1", "b1") }

func wasWith(content, bound string) *Submission {
	return &Submission{
		Number:  1,
		Content: content,
		Bound:   bound,
		Files:   []FileHash{{Path: "report.md", SHA256: content}},
	}
}

// judged adds a judge's verdict.
func (s *Submission) judged(j Judge, passed bool) *Submission {
	if s.LastTurn(j.Kind) == nil {
		s.Turns = append(s.Turns, Turn{With: j.Kind, At: testTime, EndedAt: &testTime})
	}
	v := &Verdict{Kind: j.Kind, Key: j.Key, Digest: j.of(s.Content, s.Bound), Passed: passed}
	if j.Kind == ByProgram {
		v.Check = &CheckRun{Ends: j.Ends}
	}
	s.Verdicts = append(s.Verdicts, v)
	if v.Fails() {
		s.EndedAt = &testTime
	}
	return s
}

func (s *Submission) passed(judges ...Judge) *Submission {
	for _, j := range judges {
		s.judged(j, true)
	}
	return s
}

func (s *Submission) failed(j Judge) *Submission { return s.judged(j, false) }

// instead adds a verdict in place of the reviewers'.
func (s *Submission) instead(kind Kind) *Submission {
	s.Verdicts = append(s.Verdicts, &Verdict{Kind: kind, Digest: s.Content, Passed: true})
	return s
}

func (s *Submission) unfit() *Submission {
	s.Verdicts = append(s.Verdicts, &Verdict{Kind: ByShape, Digest: s.Content})
	s.EndedAt = &testTime
	return s
}

// with gives it to a judge of this kind.
func (s *Submission) with(kind Kind) *Submission {
	s.Turns = append(s.Turns, Turn{With: kind, At: testTime})
	return s
}

func (s *Submission) void(notBegun bool) *Submission {
	return s.Ended(&Void{Why: "the reviewer hung", NotBegun: notBegun}, testTime)
}

func (s *Submission) number(n int) *Submission {
	s.Number = n
	return s
}

func (s *Submission) told() *Submission {
	s.Told = true
	return s
}

func (s *Submission) ended() *Submission { return s.Ended(nil, testTime) }

func (s *Submission) imported() *Submission {
	s.Imported, s.Told = true, true
	return s.ended()
}

var whys = []string{"", "NoAccount", "AgentMayNot", "NobodyMay", "Unfit", "ChecksFailed", "SelfReview", "NotReviewed",
	"ReviewFailed", "UsedUp", "UsedUpBefore", "MovedOn", "Superseded", "Changed", "NoVerdict"}

// String says what a hand-in leads to: the action, why, of which submission, with whom, and after a colon the
// verdicts: + passes, - does not, * is reused.
func (n Now) String() string {
	var b strings.Builder
	b.WriteString([]string{"move", "run", "await", "refuse"}[n.Do])
	if n.Why != 0 {
		b.WriteString(" " + whys[n.Why])
	}
	if n.With != "" {
		fmt.Fprintf(&b, " with %s", n.With)
	}
	if n.Of != nil {
		fmt.Fprintf(&b, " of %d", n.Of.ID)
	}
	if n.Number != 0 {
		fmt.Fprintf(&b, " try %d", n.Number)
	}
	for i, v := range n.Verdicts {
		b.WriteString(strings.Repeat(":", max(0, 1-i)) + " " + string(v.Kind))
		b.WriteString(map[bool]string{true: "+", false: "-"}[v.Passed] + strings.Repeat("*", len(v.reuse())))
	}
	for _, name := range n.Over {
		b.WriteString(", over " + name)
	}
	if n.Ends != nil {
		fmt.Fprintf(&b, ", ends %v", n.Ends.Passed)
		if n.Ends.More != "" {
			b.WriteString(", " + n.Ends.More)
		}
	}
	if n.About != "" {
		b.WriteString(", about " + n.About)
	}
	if n.Others {
		b.WriteString(", others")
	}
	return b.String()
}

func (v *Verdict) reuse() string { return map[bool]string{true: "*"}[v.Reused] }

// decide is what a call does: it looks whether it is barred, then what it leads to.
func decide(r Rules, p Past, h HandIn) Now {
	r = r.forContent(h.Content, h.Bound)
	if why := Barred(r, p, h); why != 0 {
		return Now{Do: Refuse, Why: why}
	}
	return Next(r, p, h)
}

type nextRow struct {
	name  string
	past  Past
	rules Rules
	h     HandIn
	want  string
}

func testNext(t *testing.T, rows []nextRow) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			testkit.Equal(t, decide(row.rules, row.past, row.h).String(), row.want)
		})
	}
}
