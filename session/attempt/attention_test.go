package attempt

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/session"
	"deepwork/session/board"
)

func TestNeedsAttention(t *testing.T) {
	p := newProject(t)
	soon := time.Now().Add(time.Hour)
	var broken error
	s := p.open(func(o *Options) {
		o.Steps = func(_ context.Context, who session.Caller, _ []string) ([]session.AwaitingStep, error) {
			if who.Identity != me.Identity {
				return nil, broken
			}
			return []session.AwaitingStep{{SessionID: "0a1b2c3d", Step: "write", Goal: "A report", Since: soon}}, broken
		}
	})
	kinds := func(who session.Caller) (all []string) {
		t.Helper()
		r, err := s.NeedsAttention(ctx, who)
		must(t, err)
		if r.Count != len(r.Items) || r.Truncated || r.Items == nil {
			t.Errorf("%+v", r)
		}
		for _, i := range r.Items {
			all = append(all, i.Kind+" "+i.ID)
		}
		return all
	}
	if got := kinds(session.Caller{Identity: "eve"}); got != nil {
		t.Errorf("at first: %v", got)
	}
	good, bad := s.newTask("! say hello"), s.newTask("! exit 3")
	done := s.ends(s.begin(good).AttemptID)
	failed := s.ends(s.begin(bad).AttemptID)
	if done.State != "completed" || failed.State != "failed" {
		t.Fatalf("%+v\n%+v", done, failed)
	}
	want := []string{"step_waits 0a1b2c3d", "attempt_failed " + failed.AttemptID, "attempt_to_review " + done.AttemptID}
	if got := kinds(me); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := kinds(session.Caller{Identity: "eve"}); got != nil {
		t.Errorf("another caller sees %v", got)
	}
	r, err := s.NeedsAttention(ctx, me)
	must(t, err)
	if i := r.Items[0]; i.Title != "Step write: A report" || i.Command != "deepwork sessions override 0a1b2c3d write --reason TEXT" || *i.Since != board.Stamp(soon) {
		t.Errorf("%+v", i)
	}
	if i := r.Items[1]; i.Title != bad.Title || i.Command != "deepwork board tail "+failed.AttemptID || *i.Since != *failed.EndedAt {
		t.Errorf("%+v, want the end of %+v", i, failed)
	}
	_, err = s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: good.TaskID, Status: new("done")})
	must(t, err)
	if got := kinds(me); !slices.Equal(got, want[:2]) {
		t.Errorf("after it was accepted: %v, want %v", got, want[:2])
	}

	withheld := func(w config.Withheld) func(*config.Config) {
		return func(c *config.Config) { c.Approval = &config.Approval{Withheld: &w} }
	}
	agents, source := config.Asked{Key: config.AgentsKey}, config.Asked{Key: "workflow_tools.sources.ci", Text: "./ci"}
	for name, test := range map[string]struct {
		config.Withheld
		title string
	}{
		"agents alone": {config.Withheld{Asked: []config.Asked{agents}}, ""},
		"denied":       {config.Withheld{Asked: []config.Asked{source}, Denied: true}, ""},
		"a source":     {config.Withheld{Asked: []config.Asked{agents, source}}, "Not approved: agents, workflow_tools.sources.ci"},
		"a fault":      {config.Withheld{Asked: []config.Asked{source}, Fault: "it is a link."}, "Not approved: workflow_tools.sources.ci. It cannot be approved: it is a link"},
	} {
		p.Configure(withheld(test.Withheld))
		r, err := s.NeedsAttention(ctx, me)
		must(t, err)
		i := r.Items[len(r.Items)-1]
		if (i.Kind == board.AttentionUntrusted) != (test.title != "") || i.Kind == board.AttentionUntrusted && (i.Title != test.title || i.Command != "deepwork trust" || len(i.ID) != 16) {
			t.Errorf("%s: %+v", name, i)
		}
	}
	broken = errors.New("no sessions")
	if _, err := s.NeedsAttention(ctx, me); !errors.Is(err, broken) {
		t.Error(err)
	}
}
