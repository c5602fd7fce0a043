package transport

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/transport/tool"
)

func withSnapshot(snap *catalog.Snapshot) func(*engines) {
	return func(p *engines) { p.jobs = func(context.Context) *catalog.Snapshot { return snap } }
}

func jobsNamed(n int, summary string) []*job.Job {
	var jobs []*job.Job
	for i := range n {
		jobs = append(jobs, &job.Job{Name: fmt.Sprintf("job_%d", i), Workflows: []job.Workflow{{Name: "w", Summary: summary}}})
	}
	return jobs
}

func TestReq001_1_11_InstructionsDescribeTheLifecycle(t *testing.T) {
	s, _ := fakeServer(t, nil, withSnapshot(&catalog.Snapshot{Jobs: jobsNamed(2, "Does it.")}))
	got := client(t, s).InitializeResult().Instructions
	at := 0
	for _, word := range []string{"Discover", "Start", "Execute", "Checkpoint", "Iterate", "Continue", "Complete"} {
		i := strings.Index(got[at:], word+":")
		if i < 0 {
			t.Fatalf("%s is not in its place in:\n%s", word, got)
		}
		at += i
	}
	for _, word := range []string{"get_workflows", "start_workflow", "finished_step", "get_step", "step_id", "request_id", "session_id", "Nested", "Concurrent"} {
		if !strings.Contains(got, word) {
			t.Errorf("%s is not in:\n%s", word, got)
		}
	}
	if !strings.HasPrefix(got, "Workflows") || !strings.Contains(got, "- job_1/w: Does it.") {
		t.Errorf("the workflows do not come first:\n%s", got)
	}
}

func TestInstructionsAreBounded(t *testing.T) {
	loads := func(n int, text string) (errs []catalog.LoadError) {
		for i := range n {
			errs = append(errs, catalog.LoadError{JobName: fmt.Sprintf("broken_%d", i),
				Diagnostics: job.Diagnostics{{File: "job.yml", Warning: true, Message: "w"}, {File: "job.yml", Line: 3, Column: 1, Message: text}}})
		}
		return errs
	}
	for name, c := range map[string]struct {
		snap *catalog.Snapshot
		says string
	}{
		"none":         {&catalog.Snapshot{}, "no workflows yet"},
		"1000 jobs":    {&catalog.Snapshot{Jobs: jobsNamed(1000, strings.Repeat("é", 200))}, "more: get_workflows"},
		"long names":   {&catalog.Snapshot{Jobs: []*job.Job{{Name: strings.Repeat("j", 5000), Workflows: []job.Workflow{{Name: "w"}}}}}, "1 more"},
		"an error":     {&catalog.Snapshot{Jobs: jobsNamed(3, "s"), Errors: loads(1, "steps: missing\nsecond line")}, "broken_0: job.yml:3:1: steps: missing second line"},
		"1000 errors":  {&catalog.Snapshot{Errors: loads(1000, strings.Repeat("\U0001F600", 500))}, "1000 jobs failed to load"},
		"no diagnosis": {&catalog.Snapshot{Errors: []catalog.LoadError{{JobName: "x\xff"}}}, "does not load"},
	} {
		s, _ := fakeServer(t, nil, withSnapshot(c.snap))
		got := client(t, s).InitializeResult().Instructions
		if len(got) >= 2048 || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes, valid %v", name, len(got), utf8.ValidString(got))
		}
		if !strings.Contains(got, c.says) {
			t.Errorf("%s: %q is not in:\n%s", name, c.says, got)
		}
		if !strings.HasSuffix(got, lifecycle) {
			t.Errorf("%s: the lifecycle is cut:\n%s", name, got)
		}
	}
}

// What changes is told as it is when a client connects, not as it was at start.
func TestInstructionsAreOfTheMoment(t *testing.T) {
	snap := &catalog.Snapshot{Jobs: jobsNamed(1, "s")}
	s, _ := fakeServer(t, nil, func(p *engines) {
		p.jobs = func(context.Context) *catalog.Snapshot { return snap }
	})
	before := client(t, s).InitializeResult().Instructions
	snap = &catalog.Snapshot{Jobs: jobsNamed(2, "s")}
	after := client(t, s).InitializeResult().Instructions
	if strings.Contains(before, "job_1/") || !strings.Contains(after, "job_1/") {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	// The older way to connect.
	if lines := overStdio(t, s, hello); !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "job_1/") }) {
		t.Errorf("initialize: %s", lines)
	}
}

func TestOneLine(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		want string
	}{{"a\n\tb", 10, "a b"}, {"éééé", 7, "éé…"}, {"éééé", 8, "éééé"}, {"a\xffb", 10, "a\uFFFDb"}, {"", 3, ""}} {
		if got := tool.OneLine(c.in, c.max); got != c.want {
			t.Errorf("tool.OneLine(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
		}
	}
}
