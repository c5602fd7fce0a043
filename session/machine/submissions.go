package machine

import (
	"slices"
	"strings"
	"time"

	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/codes"
	"deepwork/session/judging"
)

// Protected is the state, when a step began, of the files that its checks protect.
type Protected struct {
	Patterns []string `json:"patterns"`
	// by paths below the session's root; each hash is the file mode, then git's blob hash
	Files   []judging.FileHash `json:"files"`
	Ignored []string           `json:"ignored,omitempty"` // the rules by which git ignored files at that time
}

// The maximum number of a step's submissions that are stored, without those that count: void ones, and those that
// its checks have failed or passed. A reviewer that always fails must not make the record grow forever. Of those
// that do not satisfy their schemas, only the newest is stored.
const (
	keptVoids  = 10
	keptChecks = 20
)

// Handed returns the newest submission of a step, or nil. p may be nil.
func (p *StepProgress) Handed() *judging.Submission {
	if p == nil || len(p.Submissions) == 0 {
		return nil
	}
	return p.Submissions[len(p.Submissions)-1]
}

// Past returns what was handed in for a step before.
func (s *State) Past(stepID string) (past judging.Past) {
	for _, w := range s.History {
		if p, _ := w.Progress.Get(stepID); p != nil {
			for _, u := range p.Submissions {
				if !u.Imported {
					past.Withdrawn = append(past.Withdrawn, u.All(judging.ByProgram)...)
				}
			}
		}
	}
	if p := s.Progress(stepID); p != nil {
		past.Submissions, past.Grant = p.Submissions, p.Granted
	}
	return past
}

// Submit records a new submission, or the next version of one, of a step. A new one has no ID, and replaces the
// newest one, which becomes void for this reason if it is being judged. The state keeps u.
func (s *State) Submit(stepID string, u *judging.Submission, why string, at time.Time) *State {
	n := s.Next(at)
	p := n.ProgressOrNew(stepID, at)
	p.submit(u, n.Revision, why, at)
	n.setProgress(p)
	return n
}

// submit is Submit for a step's own copy of its progress.
func (p *StepProgress) submit(u *judging.Submission, revision int64, why string, at time.Time) {
	was := judging.Past{Submissions: p.Submissions}.By(u.ID)
	number := p.nextTry()
	if was == nil {
		p.Submissions = append(replaced(p.Submissions, why, at), u)
		u.ID = revision
		if u.Number == 0 {
			u.Number = number
		}
	} else {
		p.Submissions = slices.Clone(p.Submissions)
		p.Submissions[slices.Index(p.Submissions, was)] = u
	}
	if u.Reviewed() && !was.Reviewed() && u.Number >= number {
		p.QualityTries++
	}
	if u.FailedBy(judging.ByPerson) && !was.FailedBy(judging.ByPerson) {
		p.QualityTries++
	}
	if u.FailedBy(judging.ByProgram) && !was.FailedBy(judging.ByProgram) {
		p.FailedChecks++
	}
	p.Submissions = pruned(p.Submissions)
}

// replaced returns the submissions before a new one. The newest one ends, and is dropped if nothing was said.
func replaced(all []*judging.Submission, why string, at time.Time) []*judging.Submission {
	if len(all) == 0 || all[len(all)-1].EndedAt != nil {
		return slices.Clip(all)
	}
	last := all[len(all)-1]
	all = slices.Clone(all[:len(all)-1])
	switch {
	case last.Running():
		return append(all, last.Ended(&judging.Void{Why: why}, at))
	case len(last.Verdicts) > 0:
		return append(all, last.Ended(nil, at))
	}
	return all
}

// pruned returns the submissions to store.
func pruned(all []*judging.Submission) []*judging.Submission {
	last := len(all) - 1
	voids, unfit, checks := 0, 0, map[bool]int{}
	kept := make([]*judging.Submission, 0, len(all))
	for i, u := range slices.Backward(all) {
		drop := false
		switch {
		case u.Void != nil:
			voids++
			drop = voids > keptVoids
		case u.Counts() || u.EndedAt == nil:
		case u.FailedBy(judging.ByShape):
			unfit++
			drop = unfit > 1 || i != last
		default:
			failed := u.FailedBy(judging.ByProgram)
			checks[failed]++
			drop = checks[failed] > keptChecks
		}
		if !drop {
			kept = append(kept, u)
		}
	}
	slices.Reverse(kept)
	return kept
}

// nextTry returns the number of the next try of the reviews.
func (p *StepProgress) nextTry() int {
	if last := (judging.Past{Submissions: p.Submissions}).LastTry(); last != nil {
		return last.Number + 1
	}
	return 1
}

// FailedTries returns the number of failed tries of a step's reviews, which is limited. p may be nil.
func (p *StepProgress) FailedTries() int {
	if p == nil {
		return 0
	}
	return judging.Past{Submissions: p.Submissions}.FailedTries()
}

// LastTry returns the newest submission of a step that reviewers have judged, or a person has failed, or nil. p may
// be nil.
func (p *StepProgress) LastTry() *judging.Submission {
	if p == nil {
		return nil
	}
	return judging.Past{Submissions: p.Submissions}.LastTry()
}

// LastByPerson returns the newest submission that a person failed, or nil. p may be nil.
func (p *StepProgress) LastByPerson() *judging.Submission {
	if p == nil {
		return nil
	}
	for _, u := range slices.Backward(p.Submissions) {
		if u.FailedBy(judging.ByPerson) {
			return u
		}
	}
	return nil
}

// Asked returns the submission about which a person is or was asked, or nil. p may be nil.
func (p *StepProgress) Asked() *judging.Submission {
	if p == nil || p.Done() {
		return nil
	}
	for _, u := range slices.Backward(p.Submissions) {
		answered := u.Of(judging.ByPerson) != nil
		if u.LastTurn(judging.ByPerson) != nil && u.Void == nil && !u.Imported && (answered || u.EndedAt == nil) {
			return u
		}
	}
	return nil
}

// AsksPerson returns the submission that waits for a person, or nil. p may be nil.
func (p *StepProgress) AsksPerson() *judging.Submission {
	if u := p.Asked(); u.With() == judging.ByPerson {
		return u
	}
	return nil
}

// Unfit returns why what was handed in last does not satisfy its schemas, or nil. p may be nil.
func (p *StepProgress) Unfit() *judging.Verdict {
	if u := p.Handed(); u != nil && u.EndedAt != nil && !p.Done() && u.FailedBy(judging.ByShape) {
		return u.Of(judging.ByShape)
	}
	return nil
}

// FinishedWith returns the submission that a step was finished with, or nil. p may be nil.
func (p *StepProgress) FinishedWith() *judging.Submission {
	if p == nil || p.Finished == 0 {
		return nil
	}
	u := judging.Past{Submissions: p.Submissions}.By(p.Finished)
	if u == nil || len(u.Why()) == 0 {
		return nil
	}
	return u
}

// End ends a submission as void. It returns s if that has ended already.
func (s *State) End(stepID string, id int64, void *judging.Void, at time.Time) *State {
	u := s.Past(stepID).By(id)
	if u == nil || u.EndedAt != nil {
		return s
	}
	return s.Submit(stepID, u.Ended(void, at), "", at)
}

// Tell records that a call was answered by what became of a submission. It returns s if that is recorded already.
func (s *State) Tell(stepID string, u *judging.Submission, at time.Time) *State {
	if u == nil || u.Told {
		return s
	}
	told := *u
	told.Told = true
	return s.Submit(stepID, &told, "", at)
}

// movedOn is the reason of a submission that is void because its step has moved on.
const movedOn = "the step moved on before there was a verdict"

// left returns the progress of a step that is left: its submission in progress has ended. It returns p if there is
// none.
func (p *StepProgress) left(why string, at time.Time) *StepProgress {
	if u := p.Handed(); u == nil || u.EndedAt != nil {
		return p
	}
	n := p.clone()
	n.Submissions = replaced(n.Submissions, why, at)
	return n
}

// settle ends the submissions of steps that the transition to s left. s is being made.
func (s *State) settle(at time.Time) {
	var changed []*StepProgress
	for _, p := range s.StepProgress {
		if !s.IsCurrent(p.Key) {
			if over := p.Value.left(movedOn, at); over != p.Value {
				changed = append(changed, over)
			}
		}
	}
	if changed != nil {
		s.setProgress(changed...)
	}
}

// IsCurrent reports whether a step has begun and is neither finished nor left.
func (s *State) IsCurrent(stepID string) bool {
	return s.Status == Active && s.Progress(stepID).Current()
}

// Current reports whether a step of an active session has begun and is neither finished nor left. p may be
// nil.
func (p *StepProgress) Current() bool {
	return p != nil && !p.Done() && !p.Unreported && p.Dropped == nil
}

// Judged returns the submission of a step that programs or reviewers judge now, or nil.
func (s *State) Judged(stepID string) *judging.Submission {
	if u := s.Progress(stepID).Handed(); u.Running() {
		return u
	}
	return nil
}

// Grant records that a person overrides the reviews of a current step: its next finished_step is not
// reviewed. o.GivenFor is the digest of the outputs that the override is for, "" for any.
func (s *State) Grant(stepID string, o judging.Override) (*State, error) {
	if s.Status != Active {
		return nil, s.Ended()
	}

	if !s.IsCurrent(stepID) {
		return nil, session.NotNow(codes.StepNotCurrent,
			"Step '%s' of session '%s' is not to be finished now; the current step is '%s'.", stepID, s.SessionID,
			s.CurrentStepID).
			With("session_id", s.SessionID).With("current_step", s.CurrentStepID)
	}

	n, p := s.Next(o.At), s.Progress(stepID).clone()
	p.Granted = &o
	n.setProgress(p)
	return n, nil
}

// HasGrant reports whether a person has overridden the reviews of a step. p may be nil.
func (p *StepProgress) HasGrant() bool { return p != nil && p.Granted != nil }

// prove records the submission with which a step is finished, and adds an override to the step's overrides. u is a
// new one, or the next version of one; nil means that the step has no judges.
func (p *StepProgress) prove(u *judging.Submission, st *job.Step, over []string, revision int64, at time.Time) {
	grant := p.Granted
	p.Granted = nil
	if u == nil {
		p.Submissions = replaced(p.Submissions, movedOn, at)
		return
	}

	u = u.Ended(nil, at)
	u.Told = true
	if grant != nil {
		u.GivenFor = grant.GivenFor
	}
	p.submit(u, revision, movedOn, at)
	p.Finished = u.ID
	if v := u.Of(judging.OnRounds); v != nil && v.Passed {
		p.Overrides = append(slices.Clip(p.Overrides), judging.Override{
			At:       v.At,
			Identity: v.By,
			Channel:  v.Channel,
			Reason:   v.Feedback,
			Skipped:  []string{v.Key},
		})
	}
	by := u.Standing()
	if by == nil || by.Kind == judging.Off || by.Kind == judging.NotDue {
		return
	}

	var skipped []string
	for _, r := range st.Reviews {
		if !r.ByHuman || by.Kind == judging.ByOverride {
			skipped = append(skipped, r.RunEach)
		}
	}
	if u.Of(judging.ByShape) != nil {
		skipped = append(skipped, "schema")
	}
	for _, name := range over {
		skipped = append(skipped, "check "+name)
	}
	given := by.GivenFor
	if given == "" {
		given = u.GivenFor
	}
	p.Overrides = append(slices.Clone(p.Overrides), judging.Override{
		At:       by.At,
		Identity: by.By,
		Channel:  by.Channel,
		Reason:   by.Feedback,
		Skipped:  skipped,
		GivenFor: given,
	})
}

// An Answer is a person's answer about a submission.
type Answer struct {
	At       time.Time `json:"at"`
	Identity string    `json:"identity"`
	Channel  string    `json:"channel"`
	Client   bool      `json:"client,omitempty"` // an agent's client says that it asked a person
	Passed   bool      `json:"passed"`
	Feedback string    `json:"feedback"`
}

// humanKey is the key of a person's verdict, next to the keys of the step's reviews.
const humanKey = "human"

// ToAnswer returns the submission that waits for a person. content identifies the outputs that the person saw; ""
// means any.
func (s *State) ToAnswer(stepID, content string) (*judging.Submission, error) {
	if s.Status != Active {
		return nil, s.Ended()
	}

	u := s.Progress(stepID).Asked()
	switch {
	case !s.IsCurrent(stepID) || u == nil:
		return nil, session.NotNow(codes.PersonNotAsked,
			"Step '%s' of session '%s' does not wait for a person: its agent has handed in no outputs that need one. "+
				"`deepwork sessions show %s` says where it is.", stepID, s.SessionID, s.SessionID)
	case u.With() != judging.ByPerson:
		v := u.Answer()
		return nil, session.NotNow(codes.PersonAnswered,
			"%s (%s) has answered already about these outputs of step '%s' of session '%s': %s.", v.By, v.Channel,
			stepID, s.SessionID, v.Word())
	case content != "" && content != u.Content:
		return nil, session.NotNow(codes.OutputsChanged,
			"The outputs of step '%s' of session '%s' are not those that you were shown: other ones were handed in "+
				"since. Look at those, and answer again.", stepID, s.SessionID)
	}

	return u, nil
}

// Decline records that the user of a caller's client does not want to answer about the outputs with this
// digest. Others still can.
func (s *State) Decline(stepID, content, identity string, at time.Time) (*State, error) {
	u, err := s.ToAnswer(stepID, content)
	if err != nil || slices.Contains(u.Declined, identity) {
		return s, err
	}
	declined := *u
	declined.Declined = append(slices.Clone(u.Declined), identity)
	return s.Submit(stepID, &declined, "", at), nil
}

// maxAnswer is the maximum length of a person's feedback that is kept, in characters.
const maxAnswer = 8000

// Answer records a person's answer about the outputs with this digest. A negative one counts as a try, like a
// reviewer's verdict, unless it asks for one more round; the next finished_step is told.
func (s *State) Answer(stepID, content string, a Answer) (*State, error) {
	u, err := s.ToAnswer(stepID, content)
	if err != nil {
		return nil, err
	}

	asked, kind, key := u.Turn(), judging.ByPerson, humanKey
	if asked.About != "" {
		kind, key = judging.OnRounds, string(judging.OnRounds)
	}
	a.Feedback = jsontext.Clip(strings.TrimSpace(a.Feedback), maxAnswer)
	switch {
	case a.Feedback != "":
	case kind == judging.OnRounds && a.Passed:
		return nil, session.Wrong(codes.ReasonNeeded, "Say why it goes on although %s", asked.About)
	case kind == judging.ByPerson && !a.Passed:
		a.Feedback = "A person did not pass it, and gave no reason."
	}

	v := &judging.Verdict{
		Kind:     kind,
		At:       a.At,
		By:       a.Identity,
		Channel:  a.Channel,
		Client:   a.Client,
		RunEach:  asked.RunEach,
		Key:      key,
		Digest:   u.Content,
		Files:    u.Files,
		Passed:   a.Passed,
		Feedback: a.Feedback,
		Seconds:  a.At.Sub(asked.At).Seconds(),
	}
	next := u.To("", append(slices.Clip(u.Verdicts), v), a.At)
	next.Told = false
	return s.Submit(stepID, next, "", a.At), nil
}

// notice says what a person decided about a finished step; "" if no person did.
func notice(u *judging.Submission, stepID string) string {
	if v := u.Of(judging.ByOverride); v != nil {
		return "A person (" + v.By + ", " + v.Channel + ") overrode the reviews of step '" + stepID + "': " + v.Feedback
	}
	if v := u.Of(judging.ByPerson); v != nil && v.Feedback != "" {
		return "The person who passed step '" + stepID + "' says: " + v.Feedback
	}
	if v := u.Of(judging.OnRounds); v != nil && v.Passed {
		return "A person (" + v.By + ", " + v.Channel + ") lets it go on after the last round: " + v.Feedback
	}
	return ""
}
