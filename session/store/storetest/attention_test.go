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

func TestWork(t *testing.T) {
	b, c, p := newBoard(t)
	who := session.Caller{Identity: "ann"}
	of := func(title string, how task.AttemptState) task.Work {
		c.forward(time.Second)
		s := addTask(t, b, p, title)
		if title == "of ann" {
			var err error
			s, err = b.For(who).CreateTask(t.Context(), task.NewTask{ProjectID: p.ID, Title: title}, task.Request{})
			testkit.Must(t, err)
		}
		a := try(t, b, s)
		e, _ := run(t, b)
		c.forward(time.Second)
		if how != task.Running {
			end(t, b, e, task.Ending{State: how})
		}
		now, err := b.Attempt(t.Context(), a.ID)
		testkit.Must(t, err)
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
	if !slices.Equal(open, want[:1]) || !slices.Equal(ended, want[1:task.MaxWork+1]) {
		t.Errorf("open %+v\nended %+v\nwant %+v", open, ended, want)
	}
	open, ended, err = b.For(who).Work(t.Context())
	if err != nil || len(open) != 0 || len(ended) != 1 || ended[0].Title != "of ann" {
		t.Errorf("ann sees %+v %+v %v", open, ended, err)
	}
}
