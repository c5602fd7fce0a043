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
			_, err := b.UpdateTask(t.Context(), s.ID, task.TaskChange{Status: &test.status})
			testkit.Must(t, err)
		}
		switch test.title {
		case "being deleted":
			_, err := b.BeginDelete(t.Context(), s.ID)
			testkit.Must(t, err)
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
	if err != nil || more || !slices.Equal(got, want) {
		t.Errorf("%v %v\n got %+v\nwant %+v", more, err, got, want)
	}
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
			var err error
			s, err = b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: "of ann"}, task.Request{})
			testkit.Must(t, err)
		}
		try(t, b, s)
		e, _ := run(t, b)
		end(t, b, e, task.Ending{State: task.Failed})
	}
	got, more, err := b.Attention(t.Context())
	if err != nil || !more || len(got) != task.MaxAttention || got[0].Title != fmt.Sprint(task.MaxAttention) {
		t.Error(len(got), more, err)
	}
	got, more, err = b.For(who).Attention(t.Context())
	if err != nil || more || len(got) != 1 || got[0].Title != "of ann" {
		t.Errorf("ann sees %+v %v %v", got, more, err)
	}
}
