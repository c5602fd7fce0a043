package machine

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// wholeOf is all that a state and its replies are, made without what they keep of
// their encoding.
func wholeOf(t *testing.T, s *State) string {
	t.Helper()
	bare := *s
	bare.Replies = nil
	out := string(testkit.Get(json.Marshal(bare)).Must(t))
	for _, r := range s.Replies {
		out += fmt.Sprintf("\n%s %v %s %s %d %s", r.Tool, r.RequestID, r.ArgsDigest, r.StepID, r.EntryIndex, testkit.Get(json.Marshal(r.Reply)).Must(t))
	}
	return out
}

// TestStatesNeverChange makes transitions from any state there was, so that many
// have the same one before them, and looks at all of them in the end: what they
// share is never written to.
func TestStatesNeverChange(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 5))
		def, at := memoryDefinition(t, "[a, [b, c, d], e, [f, g], h]"), began
		first := testkit.Get(begin(def)).Must(t)
		states, were := []*State{first}, []string{wholeOf(t, first)}
		for i := range 300 {
			at = at.Add(time.Second)
			s := states[max(0, len(states)-1-random.IntN(8))]
			id := def.Job.Steps[random.IntN(len(def.Job.Steps))].ID
			c := Call{Tool: ToolFinish}
			if random.IntN(2) == 0 {
				c.RequestID = new(fmt.Sprint("q", i))
			}
			var next *State
			switch random.IntN(9) {
			case 0, 1, 2, 3:
				var stepID *string
				if random.IntN(2) == 0 {
					stepID = &id
				}
				if p, err := s.PlanFinish(def, stepID, never); err == nil {
					f := FinishInput{Call: c, At: at, Outputs: outputOf(p.Step.ID+"_out", OutputValue{Paths: []string{fmt.Sprint(i)}}), Texts: Instructions{}}
					if random.IntN(3) == 0 {
						kinds := []EvidenceKind{ByReviewer, BySelf, ByOverride, ByPerson, Unreviewed}
						f.Evidence = &Evidence{At: at, Kind: kinds[random.IntN(len(kinds))], Reason: fmt.Sprint(i)}
					} else if random.IntN(3) == 0 {
						if next, err = s.Grant(id, Override{At: at, Reason: fmt.Sprint(i)}); err == nil {
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
					next = s.OpenTry(id, Try{OpenedAt: at, Digest: fmt.Sprint(i), Files: []FileHash{}})
				}
			case 7:
				if s.AwaitsReview(id) {
					next = s.CloseTry(id, []*Verdict{{Key: "k", Passed: random.IntN(2) == 0}}, []string{"", "broken"}[random.IntN(2)], at)
				} else if s.IsCurrent(id) {
					next = s.CollectTry(id, at)
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
			testkit.Need(t, now == were[i], "seed %d: state %d of %d has changed:\n%s\nwas\n%s", seed, i, len(states), now, were[i])
			read := testkit.Get(Decode(s.SessionID, testkit.Get(s.Encode()).Must(t))).Must(t)
			testkit.True(t, read.UpdatedAt == s.UpdatedAt && read.Status == s.Status, "seed %d: state %d does not read back", seed, i)
		}
	}
}

// Whatever the file of a kept definition holds, what is taken from it is a workflow
// whose steps can be described, or refused with words.
func FuzzKeptDefinition(f *testing.F) {
	const source = "name: alpha\nversion: \"1.0.0\"\nsummary: s\ncommon_job_info_provided_to_all_steps_at_runtime: c\nsteps:\n  - {id: a, name: n, description: d, instructions_file: a.md, outputs: {}, reviews: []}\nworkflows:\n  - {name: main, summary: s, steps: [a]}\n"
	for _, b := range []Bundle{
		{JobDir: "/job", Source: source, Workflow: "main", Instructions: Instructions{"a": "Do it."}},
		{JobDir: "/job", Source: source, Workflow: "main"},
		{JobDir: "/job", Source: source, Workflow: "other"},
		{Source: "name: alpha"},
	} {
		f.Add(testkit.Get(json.Marshal(b)).Must(f))
	}
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, err := DecodeBundle(DefinitionRef{Hash: "h"}, data)
		if err != nil {
			return
		}
		testkit.Need(t, def.Job != nil && def.Workflow != nil && def.Kept, "%+v", def)
		for _, entry := range def.Workflow.Entries {
			texts, err := def.KeptTexts(entry)
			testkit.True(t, err != nil || len(texts) == len(entry), "%d texts of %v", len(texts), entry)
			for _, id := range entry {
				testkit.True(t, def.Job.Step(id) != nil, "there is no step %q", id)
			}
		}
	})
}
