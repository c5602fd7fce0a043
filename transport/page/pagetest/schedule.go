package pagetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/schedule"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/local"
)

// Schedule adds a schedule to a project, as a command does. It is due hourly, the first time at next.
func Schedule(t testing.TB, root, name, workflow, goal string, next time.Time) {
	t.Helper()
	stores := local.Stores(state.Of(root), false, nil)
	testkit.Must(t, stores.Database.Open(t.Context()))
	args := attempt.RunWorkflowArgs{JobName: "trip", WorkflowName: workflow, Goal: goal, Executor: new("SCRIPT")}
	testkit.Must(t, stores.Database.Schedules().Add(t.Context(), &store.Schedule{
		ID: "of-" + name, Name: name, Cron: "@hourly", Zone: "UTC", Args: testkit.Get(json.Marshal(args)).Must(t),
		Overlap: schedule.OverlapSkip, CatchUp: schedule.CatchUpLatest, CatchUpWithin: 7 * 24 * time.Hour,
		PauseAfter: 1, Next: next, CreatedAt: time.Now(), ResumedAt: time.Now(), Identity: session.LocalIdentity,
	}))
	testkit.Must(t, stores.Close(context.Background()))
}
