package workflow_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/gate"
	"deepwork/session"
	"deepwork/session/judging"
	"deepwork/session/replies"
	. "deepwork/session/workflow"
)

// A linter is a service over HTTP that judges the reports of steps.
type linter struct{ root, url string }

func (l linter) Judges(st *job.Step) bool { return st.Output("report") != nil }

func (l linter) Tasks(s gate.Submission, hash map[string]string) (tasks []gate.Task) {
	for _, o := range s.Outputs {
		path := o.Paths[0]
		do := func(ctx context.Context, v *gate.Verdict) {
			v.Reviewer = "linter"
			v.Passed, v.Feedback, v.Err = l.ask(ctx, path)
		}
		tasks = append(tasks, gate.Task{Key: "lint " + path, RunEach: "step", Digest: hash[path], Do: do})
	}
	return tasks
}

func (l linter) ask(ctx context.Context, path string) (passed bool, said string, err error) {
	content, err := os.ReadFile(filepath.Join(l.root, path))
	if err != nil {
		return false, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(content))
	if err != nil {
		return false, "", err
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, "", err
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return r.StatusCode == http.StatusOK, string(text), err
}

// A judge of a new kind is a type, and a line in the options: its verdicts count and are recorded.
func TestANewKindOfJudge(t *testing.T) {
	var asked atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if text, _ := io.ReadAll(r.Body); bytes.Contains(text, []byte("bad")) {
			http.Error(w, "line 1: no", http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(service.Close)
	p := newProject(t).reviewedJob("[]")
	_, rev, c, id := p.reviewedBy(func(o *Options) { o.Judges = []Judge{linter{p.root, service.URL}} })

	r := p.finish(c, bad)
	testkit.Equal(t, r.Status, replies.NeedsWork)
	testkit.Contains(t, *r.Feedback, "Try 1 of 3. Review of step: line 1: no")
	says(t, p.finish(c, good), replies.NextStep)
	one := p.record(id).Progress("one")
	testkit.Equal(t, one.QualityTries, 2, "%s", toJSON(t, one))
	v := one.FinishedWith().Of(judging.ByReviewer)
	testkit.Equal(t, fmt.Sprint(v.Passed, " by ", v.By), "true by linter", "%s", toJSON(t, one))
	testkit.Equal(t, asked.Load(), int32(2), "calls of the service")
	testkit.Equal(t, rev.calls(), 0, "calls of the reviewer")

	testkit.Must(t, errOf(c.GoTo(ctx, GoToArgs{StepID: "one"})))
	service.Close()
	refused(t, errOf(c.Finish(ctx, finishArgs(t, bad))), session.ToolError, "review_failed", "connect")
}
