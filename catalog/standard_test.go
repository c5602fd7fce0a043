package catalog

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"deepwork/catalog/job"
)

func bundledJobs() fstest.MapFS {
	return fstest.MapFS{
		"bundled/job.yml":         {Data: []byte(source("bundled", "standard"))},
		"bundled/steps/first.md":  {Data: []byte("Do the first.")},
		"bundled/steps/second.md": {Data: []byte("Do the second.")},
		"other/job.yml":           {Data: []byte(source("other", "standard"))},
		"other/steps/first.md":    {Data: []byte("Do the first.")},
		"other/steps/second.md":   {Data: []byte("Do the second.")},
		"notes/readme.md":         {Data: []byte("no job")},
		"readme.md":               {Data: []byte("no job")},
	}
}

func withStandard(jobs fs.FS) Options {
	o := silent()
	o.Standard = jobs
	return o
}

// checkLaidOut compares what is on disk with the bundle.
func checkLaidOut(t *testing.T, jobs fstest.MapFS, base string) {
	t.Helper()
	for name, f := range jobs {
		if strings.HasPrefix(name, "notes/") || !strings.Contains(name, "/") {
			continue
		}
		got, err := os.ReadFile(filepath.Join(base, filepath.FromSlash(name)))
		if err != nil || string(got) != string(f.Data) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".tmp") {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	must(t, err)
}

func TestStandardJobsAreListedWithoutWriting(t *testing.T) {
	p := newProject(t)
	c := p.open(withStandard(bundledJobs()))
	if got := dirs(c.Snapshot()); got != "bundled other" {
		t.Errorf("jobs: %s", got)
	}
	if _, err := os.Stat(p.path(".deepwork")); err == nil {
		t.Error("Open has written to the project")
	}
}

func TestStandardJobsAreOnDiskBeforeTheyAreNeeded(t *testing.T) {
	p := newProject(t)
	p.put("own", source("own", "own"))
	c := p.open(withStandard(bundledJobs()))
	if _, err := c.FreshJob(t.Context(), "own"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.standard()); err == nil {
		t.Error("laid out for a job that is not a standard one")
	}
	s, err := c.FreshJob(t.Context(), "bundled")
	must(t, err)
	j := s.Job("bundled")
	if j.Dir != filepath.Join(p.standard(), "bundled") {
		t.Errorf("job_dir is %s", j.Dir)
	}
	text, err := job.Instructions(j, j.Step("first"))
	if err != nil || text != "Do the first." {
		t.Errorf("instructions: %q, %v", text, err)
	}
	checkLaidOut(t, bundledJobs(), p.standard())
}

func TestStandardJobsAreRewrittenWhereTheyDiffer(t *testing.T) {
	base := func(p *project) string { return filepath.Join(p.standard(), "bundled") }
	for name, spoil := range map[string]func(p *project){
		"edited":            func(p *project) { write(p.t, filepath.Join(base(p), "job.yml"), "edited") },
		"truncated":         func(p *project) { must(p.t, os.Truncate(filepath.Join(base(p), "steps", "first.md"), 3)) },
		"same size":         func(p *project) { write(p.t, filepath.Join(base(p), "steps", "first.md"), "Do the worst.") },
		"removed":           func(p *project) { must(p.t, os.Remove(filepath.Join(base(p), "steps", "first.md"))) },
		"all removed":       func(p *project) { must(p.t, os.RemoveAll(filepath.Dir(p.standard()))) },
		"a link for a file": linkFor(func(p *project) string { return filepath.Join(base(p), "steps", "first.md") }),
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			c := p.open(withStandard(bundledJobs()))
			_, err := c.FreshJob(t.Context(), "bundled")
			must(t, err)
			// By another server that starts on it, too.
			for _, c := range []*Catalog{c, p.open(withStandard(bundledJobs()))} {
				spoil(p)
				s, err := c.FreshJob(t.Context(), "bundled")
				must(t, err)
				checkLaidOut(t, bundledJobs(), filepath.Dir(s.Job("bundled").Dir))
			}
		})
	}
}

func linkFor(where func(*project) string) func(*project) {
	return func(p *project) {
		must(p.t, os.RemoveAll(where(p)))
		must(p.t, os.Symlink(filepath.Join(p.root, "nowhere"), where(p)))
	}
}

func TestStandardJobsNeverLeaveTheirFolderThroughALink(t *testing.T) {
	p := newProject(t)
	beyond := t.TempDir()
	must(t, os.Mkdir(filepath.Dir(p.standard()), 0o700))
	link(p, beyond, p.standard())
	c := p.open(withStandard(bundledJobs()))
	if _, err := c.FreshJob(t.Context(), "bundled"); err == nil || !strings.Contains(err.Error(), "bundled") {
		t.Errorf("error %v", err)
	}
	list, err := os.ReadDir(beyond)
	must(t, err)
	if len(list) != 0 {
		t.Errorf("written outside: %v", list)
	}
}

func TestStandardJobThatCannotBeLaidOutSaysSo(t *testing.T) {
	p := newProject(t)
	// Nobody can make the folder, since it is a file.
	must(t, os.WriteFile(filepath.Dir(p.standard()), nil, 0o444))
	c := p.open(withStandard(bundledJobs()))
	if s := fresh(t, c); len(s.Jobs) != 2 {
		t.Errorf("jobs: %s", names(s))
	}
	if _, err := c.FreshJob(t.Context(), "bundled"); err == nil || !strings.Contains(err.Error(), "bundled") {
		t.Errorf("error %v", err)
	}
}

func TestTwoServersLayOutAtOnce(t *testing.T) {
	p := newProject(t)
	var wg sync.WaitGroup
	for range 4 {
		c := p.open(withStandard(bundledJobs()))
		for range 2 {
			wg.Go(func() {
				if _, err := c.FreshJob(t.Context(), "bundled"); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	checkLaidOut(t, bundledJobs(), p.standard())
}

func TestOwnJobShadowsAStandardOne(t *testing.T) {
	p := newProject(t)
	c := p.open(withStandard(bundledJobs()))
	p.put("bundled", source("bundled", "own"))
	if got := summary(fresh(t, c), "bundled"); got != "own" {
		t.Errorf("serves %q", got)
	}
	must(t, os.RemoveAll(p.path(".deepwork", "jobs", "bundled")))
	fresh(t, c)
	eventually(t, c, "the standard one again", func(s *Snapshot) bool { return summary(s, "bundled") == "standard" })
}
