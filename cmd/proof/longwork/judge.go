package longwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"deepwork/session/judging"
)

// A faults collects what is wrong.
type faults []error

func (f *faults) check(is bool, format string, args ...any) {
	if !is {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// judge compares what the client was told, the workers' journals and the database.
func (t *trial) judge(ctx context.Context) error {
	var f faults
	if t.Over == "http" { // the server may have to take up what nobody polls any more
		f.check(end(t.server) == nil, "the server could not be ended")
	}

	done, ends := t.found("done")
	task, named := t.found("task")
	again, looks := t.found("again")
	_, lost := t.found("lost")

	f.check(ends == 1 && done.Status == "completed" && !done.Failed, "the client has the results %+v", done)
	f.check(t.Client != "ts" || looks == named && (named == 0 || again.Same),
		"the task changed after its end, or was lost")

	var result struct {
		Status string `json:"status"`
		State  string `json:"state"`
		Result struct {
			Token string `json:"token_was"`
		} `json:"result"`
	}
	if err := json.Unmarshal(done.Structured, &result); err != nil {
		return errors.Join(append(f, fmt.Errorf("the result %s: %w", done.Structured, err))...)
	}
	if t.Client == "claude" {
		f.check(t.spoke() == t.Era, "the client and the server spoke %q", t.spoke())
	}

	begun, finished, beside, err := t.worked()
	if err != nil {
		return err
	}

	tasks, open := 0, 0
	if err := t.query(ctx, "SELECT count(*), count(*) FILTER (WHERE status <> 'completed') FROM long_calls", &tasks,
		&open); err != nil {
		return err
	}

	// A task whose client lost the reply that named it ends when it is forgotten.
	f.check(tasks == 1 && open == 0 || named == 0 && tasks <= 1,
		"there are %d tasks, %d of them not completed; the client got %d, the last is %s", tasks, open, named,
		task.Text)

	// Work that the killed server led begins again, and is finished once.
	f.check(beside == 0, "%d workers worked beside others", beside)
	f.check(begun <= 1+len(t.killed), "the work was begun %d times, after %d kills", begun, len(t.killed))
	switch t.kind {
	case "remote":
		// A source that was being asked when the server was killed is not asked again: what it did is unknown.
		unknown := result.State == "unknown" && lost > 0
		f.check(unknown || result.State == "completed" && result.Result.Token == t.token, "the result is %s",
			done.Structured)
		f.check(unknown && begun == 0 || begun == 1, "the workflow was started %d times at its source", begun)
		err = t.one(ctx, &f, "SELECT count(*), replace(min(state), 'unknown', 'completed') FROM workflow_executions")
	case "run":
		f.check(result.State == "completed", "the result is %s", done.Structured)
		f.check(finished == 1, "%d agents finished the step", finished)
		err = errors.Join(t.one(ctx, &f, "SELECT count(*), min(state) FROM attempts"),
			t.one(ctx, &f, "SELECT count(*), min(status) FROM workflow_sessions"))
	default:
		f.check(result.Status == "workflow_complete", "the result is %s", done.Structured)
		f.check(t.kind == "question" || finished == 1, "%d reviews were finished", finished)
		err = errors.Join(t.one(ctx, &f, "SELECT count(*), min(status) FROM workflow_sessions"), t.evidence(ctx, &f))
	}

	said, cerr := t.deepwork(ctx, "check")
	f.check(cerr == nil, "deepwork check: %v\n%s", cerr, said)
	return errors.Join(append(f, err)...)
}

// spoke returns the versions of the protocol that Claude Code has logged, each once.
func (t *trial) spoke() string {
	var versions []string
	logs, _ := filepath.Glob(filepath.Join(t.dir, ".cache", "claude-cli-nodejs", "*", "mcp-logs-deepwork", "*.jsonl"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		for _, m := range negotiated.FindAllSubmatch(text, -1) {
			versions = append(versions, string(m[1]))
		}
	}
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), ", ")
}

var negotiated = regexp.MustCompile(`negotiatedProtocolVersion\\*":\\*"([0-9-]+)`)

// one checks that a query finds one row, whose state is completed.
func (t *trial) one(ctx context.Context, f *faults, query string) error {
	n, state := 0, ""
	err := t.query(ctx, query, &n, &state)
	f.check(err != nil || n == 1 && state == "completed", "%s: %d, %s", query, n, state)
	return err
}

// evidence checks why the step was finished: once, by the reviewer, or by the person whom the client has asked.
func (t *trial) evidence(ctx context.Context, f *faults) error {
	calling, _ := t.found("calling")
	text, err := t.deepwork(ctx, "sessions", "show", calling.Text, "--json")
	if err != nil {
		return fmt.Errorf("deepwork sessions show: %w\n%s", err, text)
	}

	var s struct {
		Progress map[string]struct {
			Tries       int   `json:"quality_attempts"`
			Finished    int64 `json:"finished_with"`
			Submissions []*judging.Submission
		} `json:"step_progress"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("deepwork sessions show: %w\n%s", err, text)
	}

	p := s.Progress[t.kind]
	u := judging.Past{Submissions: p.Submissions}.By(p.Finished)
	if u == nil {
		f.check(false, "the step was not finished with a submission: %+v", p)
		return nil
	}
	e := u.Why()[0]
	if t.kind == "review" {
		f.check(e.Kind == judging.ByReviewer && p.Tries == 1, "%d tries were judged, and the evidence is %+v",
			p.Tries, e)
		return nil
	}
	f.check(e.Kind == judging.ByPerson && e.Client && e.By != "" && e.Channel == t.Over && e.Feedback == t.token,
		"the evidence is %+v", e)

	_, asked := t.found("asked")
	// Claude Code asks again if an answer was lost
	f.check(t.Over == "stdio" || t.Client == "claude" || asked == 1, "the person was asked %d times", asked)
	return nil
}

// worked returns how often the journal says that the work was begun, finished, and begun beside other work.
func (t *trial) worked() (begun, finished, beside int, err error) {
	text, err := os.ReadFile(t.journal())
	if os.IsNotExist(err) {
		err = nil
	}
	for line := range strings.Lines(string(text)) {
		switch what, _, _ := strings.Cut(line, " "); what {
		case "begin", "ran":
			begun++
		case "finished":
			finished++
		case "beside":
			beside++
		}
	}

	return begun, finished, beside, err
}

// deepwork runs a command about the project, and returns what it prints.
func (t *trial) deepwork(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, t.Program, append(args, "--path", t.root)...)
	cmd.Env = t.env
	return cmd.CombinedOutput()
}
