package attempt

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
)

// A diff that is empty says why.
func TestAnEmptyDiffSaysWhy(t *testing.T) {
	p := newProject(t)
	s := p.open()
	diff := func(id string, paths ...string) *DiffReply {
		t.Helper()
		r, err := s.GetAttemptDiff(ctx, me, DiffArgs{Target: the(id), Paths: paths})
		must(t, err)
		return r
	}
	changed := s.ends(s.begin(s.newTask("! write a.txt hello\n! write dir/b.txt hello")).AttemptID)
	for _, paths := range [][]string{nil, {"a.txt"}, {"dir"}, {"dir/"}, {"no-such-file", "a.txt"}} {
		if r := diff(changed.AttemptID, paths...); r.Notice != nil || r.Diffs[0].Diff == "" {
			t.Errorf("%q: %q, %s", paths, r.Diffs[0].Diff, deref(r.Notice))
		}
	}
	r := diff(changed.AttemptID, "b.txt", "README")
	if n := deref(r.Notice); r.Diffs[0].Diff != "" || !containsAll(n, "None of these paths is changed", `"b.txt", "README"`, "get_attempt") {
		t.Errorf("of paths that are not changed: %+v, %q", r, n)
	}
	if n := deref(diff(s.ends(s.begin(s.newTask("! say x")).AttemptID).AttemptID).Notice); !strings.Contains(n, "Nothing is changed") {
		t.Errorf("of an attempt that changed nothing: %q", n)
	}

	p.configure(func(c *config.Config) { c.Attempts.Setup = []string{"no-such-setup-program"} })
	failed := s.ends(s.begin(s.newTask("! say x")).AttemptID)
	n := deref(diff(failed.AttemptID, "a.txt").Notice)
	if failed.State != "failed" || !containsAll(n, "is failed", "no-such-setup-program", "start_task_attempt") || strings.Contains(n, "not made yet") {
		t.Errorf("of an attempt without a workspace: %q", n)
	}

	hold := filepath.Join(p.root, "..", "hold")
	p.configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	first := s.begin(s.newTask("! await " + hold))
	s.reaches(first.AttemptID, task.Running)
	waits := s.begin(s.newTask("! say x"))
	if n := deref(diff(waits.AttemptID).Notice); !containsAll(n, "not created yet", "waiting", "get_attempt") {
		t.Errorf("of one that waits: %q", n)
	}
	s.stopAttempt(waits.AttemptID)
	if n := deref(diff(waits.AttemptID).Notice); !containsAll(n, "is stopped", "never ran") {
		t.Errorf("of one that was stopped before it ran: %q", n)
	}
	s.stopAttempt(first.AttemptID)
}

// An agent that ends at once has not ended before it began.
func TestAnAgentEndsAfterItBegan(t *testing.T) {
	s := newProject(t).open()
	v := s.newTask("! say x")
	for range 3 {
		r := s.ends(s.begin(v).AttemptID)
		made, began, ended := parsed(t, r.CreatedAt), parsed(t, deref(r.StartedAt)), parsed(t, deref(r.EndedAt))
		if began.Before(made) || ended.Before(began) || time.Since(ended) < 0 {
			t.Errorf("it was made at %v, began at %v and ended at %v", made, began, ended)
		}
	}
}

func parsed(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, s)
	must(t, err)
	return at
}
