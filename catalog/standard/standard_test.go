package standard_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/catalog/standard"
)

// load lays the bundled jobs out in a fresh folder, as package catalog does,
// and loads each.
func load(t *testing.T) map[string]*job.Job {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, standard.FS()); err != nil {
		t.Fatalf("laying out the bundled jobs: %v", err)
	}
	entries, err := os.ReadDir(dir)
	testkit.Must(t, err)
	jobs := make(map[string]*job.Job)
	for _, e := range entries {
		j, ds := job.Load(filepath.Join(dir, e.Name()))
		if j == nil {
			t.Fatalf("the bundled job %s does not load:\n%v", e.Name(), ds)
		}
		if len(j.Warnings) > 0 {
			t.Errorf("the bundled job %s has warnings:\n%v", e.Name(), job.Diagnostics(j.Warnings))
		}
		if ds := job.CheckFiles(j); len(ds) > 0 {
			t.Errorf("the files of the bundled job %s:\n%v", e.Name(), ds)
		}
		jobs[e.Name()] = j
	}
	return jobs
}

func TestFSHoldsOnlyJobs(t *testing.T) {
	testkit.Must(t, fstest.TestFS(standard.FS(), "deepwork_jobs/job.yml"))
	entries, err := fs.ReadDir(standard.FS(), ".")
	testkit.Must(t, err)
	for _, e := range entries {
		if !e.IsDir() {
			t.Errorf("%s is beside the jobs and is not a job", e.Name())
		}
	}
}

func TestBundledJobsLoadWithoutFault(t *testing.T) {
	jobs := load(t)
	for dir, j := range jobs {
		if j.Name != dir {
			t.Errorf("the job in %s is named %s: a job that shadows it by folder would not shadow it by name", dir, j.Name)
		}
	}
	j := jobs["deepwork_jobs"]
	if j == nil {
		t.Fatal("there is no job deepwork_jobs")
	}
	want := map[string]string{
		"new_job": "define implement test iterate",
		"repair":  "diagnose fix",
		"learn":   "reflect apply",
	}
	for _, w := range j.Workflows {
		var steps []string
		for _, e := range w.Entries {
			steps = append(steps, strings.Join(e, "+"))
		}
		if got := strings.Join(steps, " "); got != want[w.Name] {
			t.Errorf("workflow %s has the steps %q, want %q", w.Name, got, want[w.Name])
		}
		delete(want, w.Name)
	}
	for name := range want {
		t.Errorf("workflow %s is missing", name)
	}
}

func TestEveryStepCanBeFinishedAndIsReviewed(t *testing.T) {
	for _, j := range load(t) {
		for _, s := range j.Steps {
			if !slices.ContainsFunc(s.Outputs, func(o job.Output) bool { return o.Required }) {
				t.Errorf("%s/%s requires no output", j.Name, s.ID)
			}
			if len(s.Reviews) == 0 {
				t.Errorf("%s/%s has no review", j.Name, s.ID)
			}
			if len(s.Checks) > 0 { // which would need an approval in each project
				t.Errorf("%s/%s has checks", j.Name, s.ID)
			}
			for _, r := range s.Reviews {
				for _, c := range r.Criteria {
					if !strings.HasSuffix(c.Question, "?") {
						t.Errorf("%s/%s: criterion %s is no question: %q", j.Name, s.ID, c.Name, c.Question)
					}
				}
			}
			for _, in := range s.Inputs {
				if in.FromStep != "" && j.Step(in.FromStep).Output(in.File) == nil {
					t.Errorf("%s/%s reads %q of %s, which has no such output", j.Name, s.ID, in.File, in.FromStep)
				}
			}
		}
	}
}

func TestInstructionsFilesAreNamedByJobYML(t *testing.T) {
	for dir, j := range load(t) {
		named := make(map[string]bool)
		for _, s := range j.Steps {
			if named[s.InstructionsFile] {
				t.Errorf("%s is the instructions file of two steps", s.InstructionsFile)
			}
			named[s.InstructionsFile] = true
		}
		files, err := fs.Glob(standard.FS(), path.Join(dir, "steps", "*"))
		testkit.Must(t, err)
		for _, f := range files {
			if rel := strings.TrimPrefix(f, dir+"/"); !named[rel] {
				t.Errorf("%s belongs to no step", f)
			}
		}
	}
}

// An agent reads common info and instructions with every step; what is too long
// is read with less care, and what is too short says nothing.
func TestTextsAreOfSensibleSize(t *testing.T) {
	const maxCommon, maxInstructions, maxTemplate = 10_000, 8_000, 8_000
	for dir, j := range load(t) {
		if n := len(j.CommonInfo); n > maxCommon {
			t.Errorf("%s: the common info has %d bytes, more than %d", j.Name, n, maxCommon)
		}
		for _, s := range j.Steps {
			text, err := job.Instructions(j, &s)
			if err != nil {
				t.Error(err)
				continue
			}
			lines := strings.Count(text, "\n")
			if lines < 40 || lines > 150 || len(text) > maxInstructions {
				t.Errorf("%s/%s: the instructions have %d lines and %d bytes; want 40 to 150 lines and at most %d bytes",
					j.Name, s.ID, lines, len(text), maxInstructions)
			}
		}
		for name, text := range texts(t, path.Join(dir, "templates")) {
			if len(text) > maxTemplate {
				t.Errorf("%s has %d bytes, more than %d", name, len(text), maxTemplate)
			}
		}
	}
}

// texts reads every file below a folder of the bundled jobs, by its path.
func texts(t *testing.T, root string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := fs.WalkDir(standard.FS(), root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(standard.FS(), p)
		out[p] = string(data)
		return err
	})
	testkit.Must(t, err)
	if len(out) == 0 {
		t.Fatalf("there are no files below %s", root)
	}
	return out
}
