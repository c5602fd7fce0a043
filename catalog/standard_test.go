package catalog

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"deepwork/actor/testkit"
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
		testkit.True(t, err == nil && string(got) == string(f.Data), "%s: %q, %v", name, got, err)
	}
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		testkit.True(t, err != nil || !strings.HasSuffix(path, ".tmp"), "left behind: %s", path)
		return err
	})
	must(t, err)
}

func TestStandardJobsAreListedWithoutWriting(t *testing.T) {
	p := newProject(t)
	c := p.open(withStandard(bundledJobs()))
	testkit.Equal(t, dirs(c.Snapshot()), "bundled other", "jobs")
	testkit.Fails(t, testkit.Get(os.Stat(p.path(".deepwork"))).Err(), "", "Open has written to the project")
}

func TestStandardJobsAreOnDiskBeforeTheyAreNeeded(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("own", source("own", "own"))
	c := p.open(withStandard(bundledJobs()))
	testkit.Get(c.FreshJob(t.Context(), "own")).Must(t)
	testkit.Fails(t, testkit.Get(os.Stat(p.standard())).Err(), "", "laid out for a job that is not a standard one")
	s := testkit.Get(c.FreshJob(t.Context(), "bundled")).Must(t)
	j := s.Job("bundled")
	testkit.Equal(t, j.Dir, filepath.Join(p.standard(), "bundled"), "job_dir")
	text, err := job.Instructions(j, j.Step("first"))
	testkit.True(t, err == nil && text == "Do the first.", "instructions: %q, %v", text, err)
	checkLaidOut(t, bundledJobs(), p.standard())
}

func TestStandardJobsAreRewrittenWhereTheyDiffer(t *testing.T) {
	t.Parallel()
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
			testkit.Get(c.FreshJob(t.Context(), "bundled")).Must(t)
			// By another server that starts on it, too.
			for _, c := range []*Catalog{c, p.open(withStandard(bundledJobs()))} {
				spoil(p)
				s := testkit.Get(c.FreshJob(t.Context(), "bundled")).Must(t)
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
	testkit.Fails(t, testkit.Get(c.FreshJob(t.Context(), "bundled")).Err(), "bundled", "error")
	list := testkit.Get(os.ReadDir(beyond)).Must(t)
	testkit.Equal(t, len(list), 0, "written outside: %v", list)
}

func TestStandardJobThatCannotBeLaidOutSaysSo(t *testing.T) {
	p := newProject(t)
	// Nobody can make the folder, since it is a file.
	must(t, os.WriteFile(filepath.Dir(p.standard()), nil, 0o444))
	c := p.open(withStandard(bundledJobs()))
	testkit.Equal(t, len(fresh(t, c).Jobs), 2)
	testkit.Fails(t, testkit.Get(c.FreshJob(t.Context(), "bundled")).Err(), "bundled", "error")
}

func TestTwoServersLayOutAtOnce(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	var wg sync.WaitGroup
	for range 4 {
		c := p.open(withStandard(bundledJobs()))
		for range 2 {
			wg.Go(func() { testkit.Works(t, testkit.Get(c.FreshJob(t.Context(), "bundled")).Err()) })
		}
	}
	wg.Wait()
	checkLaidOut(t, bundledJobs(), p.standard())
}

func TestOwnJobShadowsAStandardOne(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := p.open(withStandard(bundledJobs()))
	p.put("bundled", source("bundled", "own"))
	testkit.Equal(t, summary(fresh(t, c), "bundled"), "own", "serves")
	must(t, os.RemoveAll(p.path(".deepwork", "jobs", "bundled")))
	fresh(t, c)
	eventually(t, c, "the standard one again", func(s *Snapshot) bool { return summary(s, "bundled") == "standard" })
}

// A save is one way in which editors replace a job.yml.
type save struct {
	name string
	// prepare lays the first version out; nil means as a plain file.
	prepare func(p *project, first string)
	save    func(p *project, next string)
}

const savedDir = "writing"

var saves = []save{
	{name: "rename", save: func(p *project, next string) {
		temp := p.jobFile(savedDir) + ".tmp"
		write(p.t, temp, next)
		must(p.t, os.Rename(temp, p.jobFile(savedDir)))
	}},
	{name: "rename from elsewhere", save: func(p *project, next string) {
		temp := p.path("elsewhere.yml")
		write(p.t, temp, next)
		must(p.t, os.Rename(temp, p.jobFile(savedDir)))
	}},
	{name: "truncate and write", save: func(p *project, next string) {
		f := testkit.Get(os.OpenFile(p.jobFile(savedDir), os.O_WRONLY|os.O_TRUNC, 0)).Must(p.t)
		for len(next) > 0 {
			n := min(100, len(next))
			testkit.Get(f.WriteString(next[:n])).Must(p.t)
			next = next[n:]
		}
		must(p.t, f.Close())
	}},
	{name: "delete and create", save: func(p *project, next string) {
		must(p.t, os.Remove(p.jobFile(savedDir)))
		write(p.t, p.jobFile(savedDir), next)
	}},
	{name: "backup by rename, then create", save: func(p *project, next string) {
		must(p.t, os.Rename(p.jobFile(savedDir), p.jobFile(savedDir)+"~"))
		write(p.t, p.jobFile(savedDir), next)
	}},
	{name: "relative symlink swap", prepare: linked(false), save: swapped(false)},
	{name: "absolute symlink swap", prepare: linked(true), save: swapped(true)},
	{name: "write through a symlink to another folder", prepare: linked(true), save: func(p *project, next string) {
		write(p.t, p.path("store", "1", "job.yml"), next)
	}},
	{name: "symlinked directory swap", prepare: func(p *project, first string) {
		write(p.t, p.path("store", "a", "job.yml"), first)
		link(p, p.path("store", "a"), p.path(".deepwork", "jobs", savedDir))
	}, save: func(p *project, next string) {
		write(p.t, p.path("store", "b", "job.yml"), next)
		relink(p, p.path("store", "b"), p.path(".deepwork", "jobs", savedDir))
	}},
	{name: "write inside a symlinked directory", prepare: func(p *project, first string) {
		write(p.t, p.path("store", "a", "job.yml"), first)
		link(p, p.path("store", "a"), p.path(".deepwork", "jobs", savedDir))
	}, save: func(p *project, next string) { write(p.t, p.path("store", "a", "job.yml"), next) }},
	{name: "symlinked jobs folder swap", prepare: func(p *project, first string) {
		write(p.t, p.path("store", "a", savedDir, "job.yml"), first)
		link(p, p.path("store", "a"), p.path(".deepwork", "jobs"))
	}, save: func(p *project, next string) {
		write(p.t, p.path("store", "b", savedDir, "job.yml"), next)
		relink(p, p.path("store", "b"), p.path(".deepwork", "jobs"))
	}},
	{name: "directory swapped by rename", save: func(p *project, next string) {
		write(p.t, p.path("new", "job.yml"), next)
		must(p.t, os.Rename(p.path(".deepwork", "jobs", savedDir), aside(p)))
		must(p.t, os.Rename(p.path("new"), p.path(".deepwork", "jobs", savedDir)))
	}},
	{name: "jobs folder swapped by rename", save: func(p *project, next string) {
		write(p.t, p.path(".deepwork", "new", savedDir, "job.yml"), next)
		must(p.t, os.Rename(p.path(".deepwork", "jobs"), aside(p)))
		must(p.t, os.Rename(p.path(".deepwork", "new"), p.path(".deepwork", "jobs")))
	}},
	{name: "deepwork folder swapped by rename", save: func(p *project, next string) {
		write(p.t, p.path("new", "jobs", savedDir, "job.yml"), next)
		must(p.t, os.Rename(p.path(".deepwork"), aside(p)))
		must(p.t, os.Rename(p.path("new"), p.path(".deepwork")))
	}},
	{name: "deepwork folder removed and made anew", save: func(p *project, next string) {
		must(p.t, os.RemoveAll(p.path(".deepwork")))
		write(p.t, p.jobFile(savedDir), next)
	}},
}

// aside is a name that nothing has yet.
func aside(p *project) string { return p.path("old-" + rand.Text()) }

func linked(absolute bool) func(*project, string) {
	return func(p *project, first string) {
		write(p.t, p.path("store", "1", "job.yml"), first)
		link(p, target1(p, "1", absolute), p.jobFile(savedDir))
	}
}

func swapped(absolute bool) func(*project, string) {
	return func(p *project, next string) {
		write(p.t, p.path("store", "2", "job.yml"), next)
		relink(p, target1(p, "2", absolute), p.jobFile(savedDir))
	}
}

func target1(p *project, version string, absolute bool) string {
	if absolute {
		return p.path("store", version, "job.yml")
	}
	return filepath.Join("..", "..", "..", "store", version, "job.yml")
}

func link(p *project, target, name string) {
	must(p.t, os.MkdirAll(filepath.Dir(name), 0o755))
	must(p.t, os.Symlink(target, name))
}

func relink(p *project, target, name string) {
	must(p.t, os.Symlink(target, name+".tmp"))
	must(p.t, os.Rename(name+".tmp", name))
}

// eachSave runs a test for every way of saving, with another job beside it.
func eachSave(t *testing.T, test func(t *testing.T, p *project, s save)) {
	for _, s := range saves {
		t.Run(s.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && s.prepare != nil {
				t.Skip("symlinks need a privilege on Windows")
			}
			t.Parallel()
			p := newProject(t)
			if s.prepare != nil {
				s.prepare(p, source("writing", "one"))
			} else {
				p.put(savedDir, source("writing", "one"))
			}
			test(t, p, s)
		})
	}
}

func heardOf(t *testing.T, o Options) {
	eachSave(t, func(t *testing.T, p *project, s save) {
		c := p.open(o)
		got := summary(c.Snapshot(), "writing")
		testkit.Need(t, got == "one", "at first: %q", got)
		// More than once: what was watched has been replaced by the first.
		for _, version := range []string{"two", "three", "four"} {
			s.save(p, source("writing", version))
			eventually(t, c, version, func(s *Snapshot) bool { return summary(s, "writing") == version })
		}
		write(t, p.jobFile(savedDir), source("writing", "five"))
		eventually(t, c, "five", func(s *Snapshot) bool { return summary(s, "writing") == "five" })
	})
}

func TestEverySaveIsHeardByTheWatcher(t *testing.T) {
	t.Parallel()
	heardOf(t, Options{Debounce: 5 * time.Millisecond, Poll: time.Hour})
}

func TestEverySaveIsSeenByThePoller(t *testing.T) {
	t.Parallel()
	heardOf(t, Options{NoWatch: true, Poll: 20 * time.Millisecond})
}

func TestReadYourOwnWritesWithoutEvents(t *testing.T) {
	t.Parallel()
	eachSave(t, func(t *testing.T, p *project, s save) {
		all, one := p.open(silent()), p.open(silent())
		for _, version := range []string{"two", "three", "four"} {
			s.save(p, source("writing", version))
			got := testkit.Get(one.FreshJob(t.Context(), "writing")).Must(t)
			a, b := summary(fresh(t, all), "writing"), summary(got, "writing")
			testkit.True(t, a == version && b == version, "Fresh serves %q, and FreshJob %q, not %q", a, b, version)
		}
	})
}
