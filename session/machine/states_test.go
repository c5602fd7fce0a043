package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/judging"
	"deepwork/session/outputs"
)

// wholeOf is all that a state and its replies are, made without what they keep of their encoding.
func wholeOf(t *testing.T, s *State) string {
	t.Helper()
	bare := *s
	bare.Replies = nil
	out := string(testkit.Get(json.Marshal(bare)).Must(t))
	for _, r := range s.Replies {
		out += fmt.Sprintf("\n%s %v %s %s %d %s", r.Tool, r.RequestID, r.ArgsDigest, r.StepID, r.EntryIndex,
			testkit.Get(json.Marshal(r.Reply)).Must(t))
	}
	return out
}

// judgedAtRandom gives or withdraws the verdict on what was handed in last for a current step, or tells it.
func judgedAtRandom(t *testing.T, random *rand.Rand, s *State, id string, at time.Time) *State {
	t.Helper()
	u, passed := s.Progress(id).Handed(), random.IntN(2) == 0
	switch {
	case s.Judged(id) != nil && random.IntN(2) == 0:
		return s.End(id, u.ID, &judging.Void{Why: "broken"}, at)
	case s.Judged(id) != nil:
		next := judging.Kind("")
		if passed && random.IntN(2) == 0 {
			next = judging.ByPerson
		}
		v := &judging.Verdict{Kind: u.With(), Key: "k", Passed: passed, Check: &judging.CheckRun{}}
		return s.Submit(id, u.To(next, append(slices.Clip(u.Verdicts), v), at), "", at)
	case u.With() != judging.ByPerson:
		return s.Tell(id, u, at)
	case random.IntN(2) == 0:
		return testkit.Get(s.Decline(id, u.Content, fmt.Sprint("p", random.IntN(3)), at)).Must(t)
	}
	return testkit.Get(s.Answer(id, u.Content, Answer{At: at, Passed: passed})).Must(t)
}

// TestStatesNeverChange makes transitions from any state there was, so that many have the same one before
// them, and looks at all of them in the end: what they share is never written to.
func TestStatesNeverChange(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 5))
		def, at := memoryDefinition(t, "[a, [b, c, d], e, [f, g], h]"), began
		first := testkit.Get(begin(def)).Must(t)
		states, were := []*State{first}, []string{wholeOf(t, first)}
		for i := range 300 {
			at = at.Add(time.Second)
			s, id := states[max(0, len(states)-1-random.IntN(8))], def.Job.Steps[random.IntN(len(def.Job.Steps))].ID
			c := Call{Tool: ToolFinish, RequestID: []*string{nil, new(fmt.Sprint("q", i))}[random.IntN(2)]}
			var next *State
			switch random.IntN(9) {
			case 0, 1, 2, 3:
				if p, err := s.PlanFinish(def, []*string{nil, &id}[random.IntN(2)], never); err == nil {
					f := FinishInput{
						Call:    c,
						At:      at,
						Outputs: outputOf(p.Step.ID+"_out", outputs.Value{Paths: []string{fmt.Sprint(i)}}),
						Texts:   Instructions{},
					}
					if random.IntN(3) == 0 {
						kinds := []judging.Kind{judging.ByReviewer, judging.BySelf, judging.ByReason,
							judging.ByOverride, judging.Off}
						u := s.Progress(p.Step.ID).Handed()
						if u == nil || u.EndedAt != nil {
							u = handed(fmt.Sprint(i), "")
						}
						f.With = u.To("", append(slices.Clip(u.Verdicts), &judging.Verdict{
							Kind:     kinds[random.IntN(len(kinds))],
							At:       at,
							Passed:   true,
							Feedback: fmt.Sprint(i),
						}), at)
					} else if random.IntN(3) == 0 {
						if next, err = s.Grant(id, judging.Override{At: at, Reason: fmt.Sprint(i)}); err == nil {
							break
						}
					}
					next, _ = s.Finish(def, p, f)
				}
			case 4:
				if to, err := s.PlanGoTo(def, id); err == nil {
					c.Tool = ToolGoTo
					next, _ = s.GoTo(def, c, to, id, at.Second()%2 == 0, at, Instructions{})
				}
			case 5, 6:
				if s.IsCurrent(id) {
					kinds := []judging.Kind{judging.ByProgram, judging.ByReviewer, judging.BySelf, judging.ByPerson}
					next = s.Submit(id, handed(fmt.Sprint(i), kinds[random.IntN(len(kinds))]), "replaced", at)
				}
			case 7:
				if s.IsCurrent(id) {
					next = judgedAtRandom(t, random, s, id, at)
				}
			case 8:
				if s.Status == Active && random.IntN(20) == 0 {
					next, _ = s.Abort(Call{Tool: ToolAbort}, "why", at)
				} else { // as giving a session up and taking it up do
					next = s.Next(s.UpdatedAt)
					next.Goal = fmt.Sprint(i)
				}
			}
			if next == nil || next == s {
				continue
			}
			testkit.Must(t, testkit.Get(next.Encode()).Err()) // which keeps parts of it
			states, were = append(states, next), append(were, wholeOf(t, next))
		}
		testkit.True(t, len(states) >= 60, "seed %d: %d states: hardly anything was tried", seed, len(states))

		for i, s := range states {
			now := wholeOf(t, s)
			testkit.Need(t, now == were[i], "seed %d: state %d of %d has changed:\n%s\nwas\n%s", seed, i, len(states),
				now, were[i])
			read := testkit.Get(Decode(s.SessionID, testkit.Get(s.Encode()).Must(t))).Must(t)
			testkit.True(t, read.UpdatedAt == s.UpdatedAt && read.Status == s.Status,
				"seed %d: state %d does not read back", seed, i)
		}
	}
}
