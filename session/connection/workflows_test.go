package connection

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog"
	"deepwork/catalog/job"
	"deepwork/session/replies"
)

// manyJobs is a snapshot of n jobs.
func manyJobs(n, description int) *catalog.Snapshot {
	snap := &catalog.Snapshot{}
	for i := range n {
		j := &job.Job{
			Name:      fmt.Sprintf("job_%05d", i),
			Summary:   strings.Repeat("s", 200),
			Workflows: []job.Workflow{{Name: "main", Summary: strings.Repeat("w", 200)}},
		}
		if description > 0 {
			j.Description = new(strings.Repeat("d", description))
		}
		snap.Jobs = append(snap.Jobs, j)
	}
	return snap
}

// get_workflows of any number of jobs is bounded: descriptions go first, then jobs, and the notice says which
// and where they are.
func TestGetWorkflowsIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		snapshot *catalog.Snapshot
		listed   int
		words    []string
	}{
		"all of it": {manyJobs(1000, 2000), 1000, nil},
		"long descriptions": {manyJobs(1000, 20_000), 1000,
			[]string{"descriptions of the jobs are left out", "job.yml"}},
		"10,000 jobs": {manyJobs(8000, 0), 8000, nil},
		"too many jobs": {manyJobs(20_000, 10), -1,
			[]string{"descriptions", "of 20000 jobs are listed", "`deepwork jobs`"}},
	} {
		enc := testkit.Get(encodeJobs(c.snapshot, nil)).Must(t)
		var jobs []replies.JobInfo
		testkit.Must(t, json.Unmarshal(enc.Jobs, &jobs))
		testkit.Need(t, len(enc.Jobs) <= jobsBytes, "%s: %d jobs in %d bytes", name, len(jobs), len(enc.Jobs))
		testkit.Need(t, (len(jobs) == c.listed || c.listed < 0), "%s: %d jobs in %d bytes", name, len(jobs),
			len(enc.Jobs))
		testkit.True(t, len(jobs) >= 1000, "%s: %d jobs in %d bytes", name, len(jobs), len(enc.Jobs))
		testkit.Equal(t, c.words == nil, enc.Notice == nil, "%s: the notice is %v", name, enc.Notice)
		testkit.ContainsAll(t, *cmp.Or(enc.Notice, new("")), c.words, name)
		for i, j := range jobs {
			testkit.Need(t, j.Name == c.snapshot.Jobs[i].Name, "%s: job %d is %+v", name, i, j)
			testkit.Need(t, len(j.Workflows) == 1, "%s: job %d is %+v", name, i, j)
			testkit.Need(t, (len(c.words) == 0 || j.Description == nil), "%s: job %d is %+v", name, i, j)
		}
	}
}
