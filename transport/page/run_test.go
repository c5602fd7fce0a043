package page

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/run"
)

// A run of many steps whose agents say much, with many tries, fits on a page, beside a diff.
func TestRunFits(t *testing.T) {
	const most = 100<<10 - maxDiff - 8000 // the rest of the page
	views, err := parseViews()
	testkit.Must(t, err)
	long := strings.Repeat("<b> & ", 2000)
	of := func(id, state string, tries int) *run.Step {
		v := &run.Step{ID: id, Name: strings.Repeat("A name ", 5), SessionID: "0a1b2c3d", State: state, Last: long, Took: 3 * time.Minute}
		for range tries {
			v.Agents = append(v.Agents, board.RunStep{ExecutionID: uuid.NewString(), StepID: id, Executor: "WRITER", State: "failed", Error: &long, EndedAt: new("2026-01-01T00:00:00Z")})
		}
		return v
	}
	for _, finished := range []int{0, 50, 250} {
		v := &runView{View: &run.View{RunReply: &board.RunReply{RunID: uuid.NewString(), State: "running", SessionID: new("0a1b2c3d")}, Live: true}}
		for i := range 250 {
			step := of(fmt.Sprint("step", i), "not begun", 0)
			if i < finished {
				step = of(step.ID, "finished", 30)
			} else if i == finished {
				step = of(step.ID, "running", 30)
			}
			v.Tree.Entries = append(v.Tree.Entries, []*run.Step{step})
		}
		v.fit()
		p := &attemptPage{FullAttemptReply: &attempt.FullAttemptReply{}, Task: &board.TaskReply{}, Run: v}
		var b bytes.Buffer
		testkit.Must(t, views.of["attempt"].Execute(&b, frame{Data: p, Caller: session.LocalCaller("page")}))
		if b.Len() > most {
			t.Errorf("with %d finished, the page has %d bytes, more than %d", finished, b.Len(), most)
		}
		if shown := len(v.Tree.Entries); shown+v.Before+v.After != 250 || shown > maxSteps {
			t.Errorf("with %d finished, %d are shown, %d and %d left out", finished, shown, v.Before, v.After)
		}
		if finished < 250 && !strings.Contains(b.String(), "running</span>") {
			t.Errorf("with %d finished, the one that runs is left out", finished)
		}
	}
}
