package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"deepwork/actor/testkit"
)

func dirs(s *Snapshot) string {
	var out []string
	for _, j := range s.Jobs {
		out = append(out, filepath.Base(j.Dir))
	}
	return strings.Join(out, " ")
}

// TestReq001_2_8_JobsOfAllConfiguredFolders is seed 000, 001.2.8: the folders'
// order, the jobs' order in them, and shadowing.
func TestReq001_2_8_JobsOfAllConfiguredFolders(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("zebra", source("zebra", "own"))
	p.put("apple", source("apple", "own"))
	p.put("broken", "name: [")
	extra, more := t.TempDir(), t.TempDir()
	write(t, filepath.Join(extra, "apple", "job.yml"), source("apple_too", "shadowed by a good one"))
	write(t, filepath.Join(extra, "broken", "job.yml"), source("broken", "shadowed by a bad one"))
	write(t, filepath.Join(extra, "kiwi", "job.yml"), source("kiwi", "extra"))
	write(t, filepath.Join(more, "bundled", "job.yml"), source("bundled", "shadowed by a standard one"))
	write(t, filepath.Join(more, "kiwi", "job.yml"), source("kiwi", "shadowed"))
	must(t, os.MkdirAll(p.path(".deepwork", "jobs", "plain", "steps"), 0o755))
	write(t, p.path(".deepwork", "jobs", "notes.txt"), "no job")

	c := p.open(Options{
		NoWatch:    true,
		Poll:       time.Hour,
		Additional: []string{extra, filepath.Join(p.root, "missing"), more, "relative"},
		Standard:   fstest.MapFS{"bundled/job.yml": {Data: []byte(source("bundled", "standard"))}},
	})
	s := c.Snapshot()
	got, want := dirs(s), "apple zebra bundled kiwi"
	testkit.True(t, got == want, "jobs are %q, want %q", got, want)
	testkit.Equal(t, summary(s, "bundled"), "standard", "bundled")
	testkit.True(t, len(s.Errors) == 1 && s.Errors[0].JobName == "broken" && s.Err("broken") != nil, "errors are %v", s.Errors)
	testkit.True(t, s.Job("broken") == nil, "a broken job is shadowing no other")
	testkit.Equal(t, p.log.Count("relative"), 1, "the relative folder was not logged")
}

// A project's copy of a bundled job that does not load leaves the bundled one in its place, and its fault says what to
// delete. One that loads comes first.
func TestABrokenCopyOfABundledJob(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("bundled", "name: [")
	o := silent()
	o.Standard = fstest.MapFS{"bundled/job.yml": {Data: []byte(source("bundled", "standard"))}}
	c := p.open(o)
	s, err := c.Fresh(t.Context())
	must(t, err)
	testkit.Need(t, summary(s, "bundled") == "standard" && len(s.Jobs) == 1 && len(s.Errors) == 1, "jobs %q, errors %v", dirs(s), s.Errors)
	want := "delete the folder " + p.path(".deepwork", "jobs", "bundled")
	got := s.Err("bundled").Diagnostics[0].Message
	testkit.True(t, strings.HasSuffix(got, want), "the first fault is %q, want %q at its end", got, want)
	p.put("bundled", source("bundled", "own"))
	s, err = c.Fresh(t.Context())
	must(t, err)
	testkit.True(t, summary(s, "bundled") == "own" && len(s.Jobs) == 1 && len(s.Errors) == 0, "corrected: jobs %q, errors %v", dirs(s), s.Errors)
}

// TestReq001_2_6_ErrorsBesideGoodJobs is seed 000, 001.2.6 and 7.
func TestReq001_2_6_ErrorsBesideGoodJobs(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("good", source("good", "fine"))
	p.put("empty", "")
	p.put("huge", "# "+strings.Repeat("x", 1<<20))
	must(t, os.MkdirAll(p.jobFile("directory"), 0o755))
	p.put("bad", "name: bad\nversion: one\n")
	c := p.open(silent())
	s := c.Snapshot()
	testkit.Need(t, dirs(s) == "good" && len(s.Errors) == 4, "jobs %q, errors %v", dirs(s), s.Errors)
	for i, name := range []string{"bad", "directory", "empty", "huge"} {
		e := s.Errors[i]
		testkit.True(t, e.JobName == name && e.JobDir == p.path(".deepwork", "jobs", name) && len(e.Diagnostics) != 0, "error %d is %+v, want one of %s", i, e, name)
	}
	testkit.True(t, len(s.Err("bad").Diagnostics) >= 2, "not every fault is told: %v", s.Err("bad").Diagnostics)
	testkit.Equal(t, p.log.Count("job does not load"), 4, "logged … times")
	fresh(t, c)
	fresh(t, c)
	testkit.Equal(t, p.log.Count("job does not load"), 4, "logged … times after nothing changed")
}

func TestSecondJobOfOneNameIsAnErrorOnTheLater(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("a", source("same", "first"))
	p.put("b", source("same", "second"))
	c := p.open(silent())
	s := c.Snapshot()
	testkit.Need(t, summary(s, "same") == "first" && len(s.Jobs) == 1, "jobs: %s", names(s))
	e := s.Err("b")
	testkit.Need(t, e != nil, "no error on the later")
	text := e.Diagnostics.Error()
	testkit.ContainsAll(t, text, []string{"job.yml:1:7: name: ", p.path(".deepwork", "jobs", "a"), p.path(".deepwork", "jobs", "b")}, "the error lacks")
	p.put("b", source("other", "second"))
	if s := fresh(t, c); summary(s, "other") != "second" || len(s.Errors) != 0 {
		t.Errorf("after the correction: %s %v", names(s), s.Errors)
	}
}

func TestJobIsFoundByNameThenByDirectory(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("two", "named two"))
	p.put("two", source("three", "named three"))
	s := p.open(silent()).Snapshot()
	for name, want := range map[string]string{"one": "named two", "two": "named two", "three": "named three", "four": ""} {
		testkit.Equal(t, summary(s, name), want, "%s finds", name)
	}
}

func TestFolderThatAppearsAfterStart(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"watcher": {Debounce: 5 * time.Millisecond, Poll: time.Hour},
		"poller":  {NoWatch: true, Poll: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			extra := filepath.Join(t.TempDir(), "deep", "down")
			o.Additional = []string{extra}
			c := p.open(o)
			p.put("late", source("late", "came"))
			eventually(t, c, "the project's folder", func(s *Snapshot) bool { return summary(s, "late") == "came" })
			write(t, filepath.Join(extra, "far", "job.yml"), source("far", "came"))
			eventually(t, c, "the additional folder", func(s *Snapshot) bool { return summary(s, "far") == "came" })
			must(t, os.RemoveAll(p.path(".deepwork")))
			eventually(t, c, "the folder's end", func(s *Snapshot) bool { return s.Job("late") == nil })
			p.put("late", source("late", "came again"))
			eventually(t, c, "its return", func(s *Snapshot) bool { return summary(s, "late") == "came again" })
		})
	}
}

func TestFreshSeesNewAndRenamedJobs(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	c := p.open(silent())
	p.put("one", source("one", "new"))
	if s := fresh(t, c); summary(s, "one") != "new" {
		t.Fatalf("a new job in a new folder: %s", names(s))
	}
	p.put("two", source("two", "new"))
	s := testkit.Get(c.FreshJob(t.Context(), "two")).Must(t)
	testkit.Need(t, summary(s, "two") == "new", "an unknown job: %s", names(s))
	must(t, os.Rename(p.path(".deepwork", "jobs", "two"), p.path(".deepwork", "jobs", "deux")))
	s = fresh(t, c)
	j := s.Job("two")
	testkit.Need(t, j != nil && filepath.Base(j.Dir) == "deux" && len(s.Errors) == 0 && len(s.Jobs) == 2, "a renamed directory: %s %v", names(s), s.Errors)
	// A plain folder becomes a job.
	must(t, os.MkdirAll(p.path(".deepwork", "jobs", "plain"), 0o755))
	fresh(t, c)
	p.put("plain", source("plain", "now a job"))
	if s := fresh(t, c); summary(s, "plain") != "now a job" {
		t.Fatalf("a plain folder: %s", names(s))
	}
}

func TestFreshJobSeesWhereAJobIsNow(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.put("one", source("one", "first"))
	p.put("two", source("two", "second"))
	c := p.open(silent())
	expect := func(name, want string) {
		t.Helper()
		s := testkit.Get(c.FreshJob(t.Context(), name)).Must(t)
		testkit.Equal(t, summary(s, name), want, "job %s of %s", name, names(s))
	}
	p.put("one", source("other", "first, renamed")) // still the directory's name
	expect("one", "first, renamed")
	p.put("two", source("one", "second, renamed"))
	p.put("one", source("gone", "first, renamed again"))
	expect("other", "")
	expect("one", "second, renamed")
	must(t, os.Rename(p.path(".deepwork", "jobs", "two"), p.path(".deepwork", "jobs", "deux")))
	expect("one", "second, renamed")
}

// TestFreshSeesPastLooksThatCameBetween is a call whose comparison is with a
// state that others have replaced by the time the owner looks.
func TestFreshSeesPastLooksThatCameBetween(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]func(p *project, c *Catalog){
		"of a directory without its file": func(p *project, c *Catalog) {
			must(p.t, os.MkdirAll(p.path(".deepwork", "jobs", "one"), 0o755))
			fresh(p.t, c)
			p.put("one", source("one", "new"))
		},
		"of a file that is too young": func(p *project, c *Catalog) {
			p.put("one", source("one", "new"))
			_, err := c.ask(p.t.Context(), c.state.Load().listings())
			must(p.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			c := p.open(silent())
			st := c.state.Load()
			between(p, c)
			got, err := c.look(t.Context(), st, func(s *state) []key {
				if s == st {
					return s.listings()
				}
				return s.stale()
			})
			must(t, err)
			testkit.Equal(t, summary(got, "one"), "new", "serves %q", names(got))
		})
	}
}

func TestUnreadableJobFolderKeepsWhatItHad(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	p := newProject(t)
	p.put("one", source("one", "first"))
	c := p.open(silent())
	folder := p.path(".deepwork", "jobs")
	must(t, os.Chmod(folder, 0o111))
	t.Cleanup(func() { must(t, os.Chmod(folder, 0o755)) })
	testkit.Equal(t, summary(fresh(t, c), "one"), "first")
	testkit.Equal(t, p.log.Count("cannot be listed"), 1, "not logged once")
}

// The files that jobs name are looked for, but not those of bundled jobs, and an edit of one is an event.
func TestFilesThatJobsName(t *testing.T) {
	p := newProject(t)
	p.put("one", source("one", "fine"))
	p.put("two", source("two", "fine"))
	for _, name := range []string{"first", "second"} {
		write(t, p.path(".deepwork", "jobs", "two", "steps", name+".md"), "Do it.")
	}
	c := p.open(Options{Standard: bundledJobs()})
	missing := c.Snapshot().Missing()
	testkit.Need(t, len(missing) == 1, "%+v", missing)
	testkit.Equal(t, missing[0].JobName+" in "+missing[0].JobDir, "one in "+p.path(".deepwork", "jobs", "one"))
	testkit.Equal(t, len(missing[0].Diagnostics), 2)
	events := c.Events(t.Context())
	write(t, p.path(".deepwork", "jobs", "two", "steps", "first.md"), "Do it well.")
	select {
	case <-events:
	case <-time.After(patience):
		t.Error("no event of a file that a job names")
	}
}
