package workflow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/definition"
	"deepwork/session/workflow/machine"
)

// A group whose instructions are more than a reply can have does not begin, and
// nothing has moved; when the files are shorter the same call goes on.
func TestAGroupWithTooMuchTextDoesNotBegin(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "first", outputs: oneFile}, {id: "a", outputs: oneFile}, {id: "b", outputs: oneFile}, {id: "c", outputs: oneFile}},
		map[string]string{"main": "[first, [a, b, c]]"})
	p.write("r.md", "x")
	part := strings.Repeat("Read this.\n", definition.MaxEntryBytes/3/11)
	for _, id := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+id+".md", part)
	}
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	refused(t, testkit.Get(c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &id})).Err(), session.ToolError, "instructions_too_large", "a, b, c", "nothing has moved", fmt.Sprint(definition.MaxEntryBytes))
	if r, err := c.Step(ctx, StepArgs{SessionID: &id}); err != nil || r.BeginStep.StepID != "first" {
		t.Fatalf("the session moved: %+v, %v", r, err)
	}
	p.write(".deepwork/jobs/alpha/steps/c.md", "Little.")
	r, err := c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &id})
	testkit.Need(t, err == nil && len(r.ConcurrentSteps) == 2 && strings.HasPrefix(r.BeginStep.Instructions, part[:len(part)-1]), "%v", err)
}

// A group that began and has too much text by now is read as it began, and get_step
// says why.
func TestAGroupWithTooMuchTextByNowIsReadAsItBegan(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "a", outputs: oneFile}, {id: "b", outputs: oneFile}, {id: "c", outputs: oneFile}},
		map[string]string{"main": "[[a, b, c]]"})
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	before := testkit.Get(c.Step(ctx, StepArgs{SessionID: &id})).Must(t)
	for _, name := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+name+".md", strings.Repeat("Read this.\n", definition.MaxEntryBytes/3/11))
	}
	r, err := c.Step(ctx, StepArgs{SessionID: &id})
	testkit.Need(t, err == nil && r.BeginStep.Instructions == before.BeginStep.Instructions, "%+v, %v", r, err)
	if r.Notice == nil || !strings.Contains(*r.Notice, "those the step began with") || !strings.Contains(*r.Notice, fmt.Sprint(definition.MaxEntryBytes)) || strings.Contains(*r.Notice, "nil") {
		t.Errorf("the notice is %v", r.Notice)
	}
}

// Nor does a group begin whose text was kept when the job was there still; the
// remedy is another, since edits of the files do not reach it.
func TestAKeptGroupWithTooMuchTextDoesNotBegin(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.job("alpha", []testStep{{id: "first", outputs: oneFile}, {id: "a", outputs: oneFile}, {id: "b", outputs: oneFile}, {id: "c", outputs: oneFile}},
		map[string]string{"main": "[first, [a, b, c]]"})
	p.write("r.md", "x")
	for _, name := range []string{"a", "b", "c"} {
		p.write(".deepwork/jobs/alpha/steps/"+name+".md", strings.Repeat("Read this.\n", definition.MaxEntryBytes/3/11))
	}
	c := p.open().Connect("local")
	id := p.start(c, "alpha", "main").BeginStep.SessionID
	// Another job of this name, without the workflow.
	p.job("alpha", []testStep{{id: "first", outputs: oneFile}}, map[string]string{"other": "[first]"})
	refused(t, testkit.Get(c.Finish(ctx, FinishArgs{Outputs: outputs("report", "r.md"), SessionID: &id})).Err(), session.ToolError, "instructions_too_large", "a, b, c", "nothing has moved", "Restore the job", "abort_workflow")
}

// manyJobs is a snapshot of n jobs.
func manyJobs(n, description int) *catalog.Snapshot {
	snap := &catalog.Snapshot{}
	for i := range n {
		j := &job.Job{Name: fmt.Sprintf("job_%05d", i), Summary: strings.Repeat("s", 200), Workflows: []job.Workflow{{Name: "main", Summary: strings.Repeat("w", 200)}}}
		if description > 0 {
			j.Description = new(strings.Repeat("d", description))
		}
		snap.Jobs = append(snap.Jobs, j)
	}
	return snap
}

// get_workflows of any number of jobs is bounded: descriptions go first, then jobs,
// and the notice says which and where they are.
func TestGetWorkflowsIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		snapshot *catalog.Snapshot
		listed   int
		words    []string
	}{
		"all of it":         {manyJobs(1000, 2000), 1000, nil},
		"long descriptions": {manyJobs(1000, 20_000), 1000, []string{"descriptions of the jobs are left out", "job.yml"}},
		"10,000 jobs":       {manyJobs(8000, 0), 8000, nil},
		"too many jobs":     {manyJobs(20_000, 10), -1, []string{"descriptions", "of 20000 jobs are listed", "`deepwork jobs`"}},
	} {
		enc := testkit.Get(encodeJobs(c.snapshot, nil)).Must(t)
		var jobs []machine.JobInfo
		if err := json.Unmarshal(enc.Jobs, &jobs); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		testkit.True(t, len(enc.Jobs) <= jobsBytes && (len(jobs) == c.listed || c.listed < 0) && len(jobs) >= 1000, "%s: %d jobs in %d bytes", name, len(jobs), len(enc.Jobs))
		testkit.Equal(t, c.words == nil, enc.Notice == nil, "%s: the notice is %v", name, enc.Notice)
		for _, word := range c.words {
			testkit.True(t, strings.Contains(*enc.Notice, word), "%s: the notice does not say %q: %s", name, word, *enc.Notice)
		}
		for i, j := range jobs {
			testkit.Need(t, j.Name == c.snapshot.Jobs[i].Name && len(j.Workflows) == 1 && (len(c.words) == 0 || j.Description == nil), "%s: job %d is %+v", name, i, j)
		}
	}
}
