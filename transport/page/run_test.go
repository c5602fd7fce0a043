package page

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/jsontext"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/workflow/machine"

	"github.com/google/uuid"
)

// A run of many steps whose agents say much, with many tries, fits on a page, beside a diff.
func TestRunFits(t *testing.T) {
	const most = 100<<10 - maxDiff - 8000 // the rest of the page
	views, err := parseViews()
	testkit.Must(t, err)
	long := strings.Repeat("<b> & ", 2000)
	of := func(id, state string, tries int) runStep {
		v := runStep{ID: id, Name: strings.Repeat("A name ", 5), SessionID: "0a1b2c3d", State: state, Last: long, Took: "3 min"}
		for range tries {
			v.Agents = append(v.Agents, attempt.RunStep{ExecutionID: uuid.NewString(), StepID: id, Executor: "WRITER", State: "failed", Error: &long, EndedAt: new("2026-01-01T00:00:00Z")})
		}
		return v
	}
	for _, finished := range []int{0, 50, 250} {
		v := &runView{RunReply: &attempt.RunReply{RunID: uuid.NewString(), State: "running", SessionID: new("0a1b2c3d")}, Live: true}
		for i := range 250 {
			step := of(fmt.Sprint("step", i), "not begun", 0)
			if i < finished {
				step = of(step.ID, "finished", 30)
			} else if i == finished {
				step = of(step.ID, "running", 30)
			}
			v.Steps.Entries = append(v.Steps.Entries, []runStep{step})
		}
		v.fit()
		p := &attemptPage{FullAttemptReply: &attempt.FullAttemptReply{}, Task: &attempt.TaskReply{}, Run: v}
		var b bytes.Buffer
		testkit.Must(t, views.of["attempt"].Execute(&b, frame{Data: p, Caller: session.LocalCaller("page")}))
		if b.Len() > most {
			t.Errorf("with %d finished, the page has %d bytes, more than %d", finished, b.Len(), most)
		}
		if shown := len(v.Steps.Entries); shown+v.Before+v.After != 250 || shown > maxSteps {
			t.Errorf("with %d finished, %d are shown, %d and %d left out", finished, shown, v.Before, v.After)
		}
		if finished < 250 && !strings.Contains(b.String(), "running</span>") {
			t.Errorf("with %d finished, the one that runs is left out", finished)
		}
	}
}

// The state of a step is said in words, whatever its session and its agents are.
func TestRunStepStates(t *testing.T) {
	began, later := "2026-01-01T00:00:00Z", time.Now().Add(time.Hour)
	agent := func(state string, started, ended *string) []attempt.RunStep {
		return []attempt.RunStep{{State: state, StartedAt: started, EndedAt: ended}}
	}
	active := &machine.State{Status: machine.Active, CurrentStepID: "one", StepProgress: jsontext.OrderedMap[*machine.StepProgress]{{Key: "one", Value: &machine.StepProgress{}}}}
	for _, test := range []struct {
		want   string
		step   runStep
		closed bool
	}{
		{"waits for its turn", runStep{ID: "one"}, false},
		{"not begun", runStep{ID: "two"}, false},
		{"waits for a slot", runStep{ID: "one", Agents: agent("waiting", nil, nil)}, false},
		{"running", runStep{ID: "one", Agents: agent("running", &began, nil)}, false},
		{"waits for you", runStep{ID: "one", Agents: agent("running", &began, nil), Answer: &answerForm{}}, false},
		{"waits for the end of a limit", runStep{ID: "one", Agents: agent("failed", &began, &began), Until: &later}, false},
		{"waits for its workflow", runStep{ID: "one", Agents: agent("completed", &began, &began), Nested: []runTree{{}}}, false},
		{"tried again", runStep{ID: "one", Agents: agent("completed", &began, &began)}, false},
		{"left to do", runStep{ID: "one"}, true},
		{"left to do", runStep{ID: "one", Agents: agent("completed", &began, &began)}, true},
		{"interrupted", runStep{ID: "one", Agents: agent("interrupted", &began, &began)}, true},
		{"not begun", runStep{ID: "two"}, true},
	} {
		b := runBuilder{run: &runView{RunReply: &attempt.RunReply{}, Live: !test.closed}}
		if got := b.state(active, &test.step); got != test.want {
			t.Errorf("%+v, ended %v: %q, not %q", test.step, test.closed, got, test.want)
		}
	}
}
