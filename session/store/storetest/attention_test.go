package storetest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session"
)

func TestAttention(t *testing.T) {
	b, c, p := newBoard(t)
	var want []task.Attention // newest first
	for _, test := range []struct {
		title    string
		how      task.AttemptState
		status   task.Status // of the task afterwards; "" leaves it
		attended bool
	}{
		{"failed", task.Failed, "", true},
		{"interrupted", task.Interrupted, "", true},
		{"completed", task.Completed, task.InReview, true},
		{"early", task.Completed, "", true}, // before its workflow was complete
		{"stopped", task.Stopped, "", false},
		{"stopped in review", task.Stopped, task.InReview, true},
		{"put back", task.Failed, task.Todo, false},
		{"accepted", task.Completed, task.Done, false},
		{"given up", task.Failed, task.Cancelled, false},
		{"being deleted", task.Failed, "", false},
		{"tried again", task.Failed, "", false},
	} {
		c.forward(time.Minute)
		s := addTask(t, b, p, test.title)
		a := try(t, b, s)
		e, _ := run(t, b)
		c.forward(time.Minute)
		end(t, b, e, task.Ending{State: test.how})
		if test.status != "" {
			testkit.Must(t, second(b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &test.status})))
		}
		switch test.title {
		case "being deleted":
			testkit.Must(t, second(b.BeginDelete(t.Context(), s.ID)))
		case "tried again":
			c.forward(time.Minute)
			try(t, b, s)
		}
		if test.attended {
			want = append([]task.Attention{{TaskID: s.ID, Title: test.title, AttemptID: a.ID, State: test.how, Since: c.at.UTC().Truncate(time.Microsecond)}}, want...)
		}
	}
	addTask(t, b, p, "never tried")
	got, more, err := b.Attention(t.Context())
	testkit.Must(t, err)
	equal(t, more, false, got, want)
	testkit.Must(t, b.SetWorkflow(t.Context(), want[0].AttemptID, task.WorkflowProgress{SessionID: "00000000", Status: "active", Step: "one"}))
	if got, _, err := b.Attention(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("after its workflow moved: %+v %v", got, err)
	}
}

func TestAttentionIsBounded(t *testing.T) {
	b, c, p := newBoard(t)
	who := session.Caller{Identity: "ann"}
	for i := range task.MaxAttention + 1 {
		c.forward(time.Second)
		s := addTask(t, b, p, fmt.Sprint(i))
		if i == 3 {
			s = returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "of ann"}, task.Request{})).of(t)
		}
		try(t, b, s)
		e, _ := run(t, b)
		end(t, b, e, task.Ending{State: task.Failed})
	}
	got, more, err := b.Attention(t.Context())
	testkit.Must(t, err)
	equal(t, more, true, len(got), task.MaxAttention, got[0].Title, fmt.Sprint(task.MaxAttention))
	got, more, err = b.For(who).Attention(t.Context())
	testkit.Must(t, err)
	equal(t, "ann sees", more, false, len(got), 1, got[0].Title, "of ann")
}

func TestWork(t *testing.T) {
	b, c, p := newBoard(t)
	who := session.Caller{Identity: "ann"}
	of := func(title string, how task.AttemptState) task.Work {
		c.forward(time.Second)
		s := addTask(t, b, p, title)
		if title == "of ann" {
			s = returned(b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})).of(t)
		}
		a := try(t, b, s)
		e, _ := run(t, b)
		c.forward(time.Second)
		if how != task.Running {
			end(t, b, e, task.Ending{State: how})
		}
		now := returned(b.Attempt(t.Context(), a.ID)).of(t)
		return task.Work{TaskID: s.ID, Title: s.Title, AttemptID: a.ID, Executor: now.Executor, State: now.State}
	}
	var want []task.Work
	for i := range task.MaxWork + 1 {
		want = append(want, of(fmt.Sprint(i), task.Failed))
	}
	want = append(want, of("of ann", task.Completed), of("now", task.Running))
	slices.Reverse(want)
	open, ended, err := b.Work(t.Context())
	testkit.Must(t, err)
	for i := range open {
		open[i].Since = time.Time{}
	}
	last := ended[0].Since
	for i := range ended {
		if ended[i].Since.After(last) || ended[i].Since.IsZero() {
			t.Errorf("%+v is not in order", ended[i])
		}
		last, ended[i].Since = ended[i].Since, time.Time{}
	}
	equal(t, "open ended", open, want[:1], ended, want[1:task.MaxWork+1])
	open, ended, err = b.For(who).Work(t.Context())
	testkit.Must(t, err)
	equal(t, "ann sees", len(open), 0, len(ended), 1, ended[0].Title, "of ann")
}
