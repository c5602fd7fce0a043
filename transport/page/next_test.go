package page

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/catalog/job"
	"deepwork/catalog/jsontext"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/codes"
	"deepwork/session/machine"
	"deepwork/session/record"
	"deepwork/session/show"
	"deepwork/session/store"
)

var update = flag.Bool("update", false, "write the golden files of this package")

// An error and its next steps are worded for each audience, from the same data.
func TestNextStepsAreWordedForEachAudience(t *testing.T) {
	const id, other = "01234567-89ab-4def-8123-456789abcdef", "89abcdef-89ab-4def-8123-456789abcdef"
	asked := []config.Asked{{Key: config.SourcesKey + "ci", Text: "./ci"}, {Key: config.AgentsKey}}
	approval := func(w config.Withheld) *config.Approval {
		w.Asked = asked
		return &config.Approval{Withheld: &w}
	}
	j, faults := job.Parse("/p/jobs/trip", job.FileName, []byte(`name: trip
version: 1.0.0
summary: Plans a trip
common_job_info_provided_to_all_steps_at_runtime: Prices in EUR.
workflows: [{name: plan, summary: All of it, steps: [idea, hotel]}]
steps:
  - {id: idea, name: Idea, description: Where to, instructions_file: a.md, outputs: {}, reviews: []}
  - {id: hotel, name: Hotel, description: Where to sleep, instructions_file: a.md, outputs: {}, reviews: []}
`))
	testkit.Need(t, j != nil, "%v", faults)
	trip := &machine.State{SessionID: "0a1b2c3d", JobName: "trip", WorkflowName: "plan", Status: machine.Active,
		CurrentStepID: "idea", StepProgress: jsontext.OrderedMap[*machine.StepProgress]{
			{Key: "idea", Value: &machine.StepProgress{Child: "4e5f6071"}},
		}}
	_, ahead := trip.PlanGoTo(machine.Define(j, "plan"), "hotel")
	over := *trip
	over.Status = machine.Aborted

	var text strings.Builder
	s := &Site{}
	for _, err := range []error{
		attempt.AgentRuns(id),
		board.AttemptFault("reading", task.ErrNotFound, id),
		board.TaskFault("reading", task.ErrNotFound, id),
		board.Fault("starting", &task.BlockedError{
			TaskID: id,
			By:     []task.Blocker{{ID: other, Title: "First", Status: task.Todo}},
		}),
		board.Fault("linking", &task.CycleError{Way: []string{id, other, id}}),
		board.Fault("linking", task.ErrDependency),
		board.Fault("deleting", task.ErrDeleting),
		board.Fault("stopping", task.ErrStopping),
		board.Fault("commenting", task.ErrQueued),
		board.Fault("writing", store.ErrPending),
		board.Midway(store.ErrUnavailable),
		store.Refused(store.ErrUnavailable),
		session.Untrusted("/p", approval(config.Withheld{}), config.AgentsKey, "codex"),
		session.Untrusted("/p", approval(config.Withheld{Fault: "it is a link"}), config.SourcesKey),
		session.Untrusted("/p", approval(config.Withheld{Denied: true}), config.SourcesKey),
		session.Changed("/p", errors.New("a.sh was edited")),
		session.NotNow(codes.FollowUpQueued, "It waits.").Next("send it", "follow_up", "action", attempt.ActionQueue,
			"attempt_id", id),
		session.NotNow(codes.NotCommitted, "It is not committed.").Next("commit it", "merge_attempt", "attempt_id", id,
			"commit", true),
		session.NotNow(codes.UnknownSession, "There is none.").Next("begin one", "start_workflow"),
		session.NotNow(codes.AttemptRunning, "The run goes on.").Next("stop it", "stop_attempt", "attempt_id", id).
			By("run stop"),
		(&record.Store{}).Unknown(trip.SessionID),
		ahead,
		trip.CallOpen("idea", trip),
		trip.CallOpen("idea", nil),
		over.Ended(),
	} {
		e, ok := errors.AsType[*session.Error](err)
		testkit.Need(t, ok, "%v has no code", err)
		fmt.Fprintf(&text, "## %s\nagent:    %v\nterminal: %s\nowner:    %s\ncaller:   %s\nstored:   %s\n", e.Code, e,
			e.For(show.People), e.For(s.audience(t.Context(), session.Caller{Owner: true})),
			e.For(s.audience(t.Context(), session.Caller{})), e.For(session.Anyone))
	}
	testkit.Golden(t, "testdata/next.txt", text.String(), *update)
}
