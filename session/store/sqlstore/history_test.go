package sqlstore_test

import (
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/store"
)

// The history has sessions, attempts and runs in one order, filtered and by pages, and of a caller only its own.
func TestHistory(t *testing.T) {
	b, c, p := newBoard(t)
	began := func(id, goal string, change func(*store.SessionWrite)) {
		c.forward(time.Minute)
		w := newSession(id)
		w.Goal, w.StartedAt, w.UpdatedAt = goal, c.at.UTC().Truncate(time.Microsecond), c.at.UTC().Truncate(time.Microsecond)
		if change != nil {
			change(w)
		}
		write(t, b.db.Sessions(), w)
	}
	worked := func(title string, how task.AttemptState) {
		c.forward(time.Minute)
		who := owner
		if title == "ann's" {
			who = ann
		}
		made := returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).of(t)
		a := task.Attempt{TaskID: made.ID, Executor: "SCRIPTED", Branch: "deepwork/x-0000", Workspace: abs("w")}
		if strings.HasPrefix(title, "run") {
			a.Run = []byte(`{}`)
		}
		testkit.Must(t, second(b.CreateAttempt(t.Context(), a, task.Execution{Prompt: "do it"}, task.Request{})))
		x, _ := run(t, b)
		if how != task.Running {
			end(t, b, x, task.Ending{State: how, Usage: &task.Usage{MicroUSD: new(int64(250_000))}})
		}
	}
	began("0000000a", "Sell MORE", nil)
	began("0000000b", "of ann", func(w *store.SessionWrite) { w.Identity, w.Status, w.Job = "ann", "completed", "beta" })
	began("0000000c", "of an attempt", func(w *store.SessionWrite) { w.AttemptID = "a1" })
	worked("fixed", task.Completed)
	worked("run that failed", task.Failed)
	began("0000000d", "given up", func(w *store.SessionWrite) { w.Status = "aborted" })
	worked("goes on", task.Running)
	worked("ann's", task.Completed)

	all := []string{"ann's", "goes on", "given up", "run that failed", "fixed", "of ann", "Sell MORE"}
	for name, test := range map[string]struct {
		q    task.HistoryQuery
		who  session.Caller
		want []string
	}{
		"all":           {task.HistoryQuery{}, owner, all},
		"of a caller":   {task.HistoryQuery{}, ann, []string{"ann's", "of ann"}},
		"sessions":      {task.HistoryQuery{Kind: task.HistorySession}, owner, []string{"given up", "of ann", "Sell MORE"}},
		"attempts":      {task.HistoryQuery{Kind: task.HistoryAttempt}, owner, []string{"ann's", "goes on", "fixed"}},
		"runs":          {task.HistoryQuery{Kind: task.HistoryRun}, owner, []string{"run that failed"}},
		"going on":      {task.HistoryQuery{State: task.HistoryOpen}, owner, []string{"goes on", "Sell MORE"}},
		"done":          {task.HistoryQuery{State: task.HistoryDone}, owner, []string{"ann's", "fixed", "of ann"}},
		"stopped":       {task.HistoryQuery{State: task.HistoryStopped}, owner, []string{"given up", "run that failed"}},
		"a workflow":    {task.HistoryQuery{Job: "beta", Workflow: "main"}, owner, []string{"of ann"}},
		"a text":        {task.HistoryQuery{Text: "more"}, owner, []string{"Sell MORE"}},
		"who began it":  {task.HistoryQuery{Identity: "ann"}, owner, []string{"ann's", "of ann"}},
		"nothing of it": {task.HistoryQuery{Identity: "bob"}, session.Caller{Owner: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for q := test.q; ; { // by pages of two
				q.Limit = 2
				rows := returned(b.For(test.who).History(t.Context(), q)).of(t)
				for _, r := range rows {
					got = append(got, r.Title)
					equal(t, r.Title+" has ended", r.EndedAt != nil, r.Status+string(r.State) != "active" && r.State != task.Running)
					equal(t, r.Title+" has a cost", r.MicroUSD != nil, r.Kind == task.HistoryAttempt && r.EndedAt != nil) // a leader costs nothing
				}
				if len(rows) < 2 {
					break
				}
				q.Before, q.AfterID = rows[1].StartedAt, rows[1].ID
			}
			testkit.Same(t, got, test.want)
		})
	}
}
