package catalog

import (
	"cmp"
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

func dirs(s *Snapshot) string {
	var out []string
	for _, j := range s.Jobs {
		out = append(out, filepath.Base(j.Dir))
	}
	return strings.Join(out, " ")
}

// TestReq001_2_8_JobsOfAllConfiguredFolders is seed 000, 001.2.8: the folders' order, the jobs' order in
// them, and shadowing.
func TestReq001_2_8_JobsOfAllConfiguredFolders(t *testing.T) {
	p := newProject(t, "zebra", "own", "apple", "own")
	p.put("broken", "name: [")
	extra, more := t.TempDir(), t.TempDir()
	write(t, filepath.Join(extra, "apple", "job.yml"), source("apple_too", "shadowed by a good one"))
	write(t, filepath.Join(extra, "broken", "job.yml"), source("broken", "shadowed by a bad one"))
	write(t, filepath.Join(extra, "kiwi", "job.yml"), source("kiwi", "extra"))
	write(t, filepath.Join(more, "bundled", "job.yml"), source("bundled", "shadowed by a standard one"))
	write(t, filepath.Join(more, "kiwi", "job.yml"), source("kiwi", "shadowed"))
	must(t, os.MkdirAll(p.job("plain", "steps"), 0o755))
	write(t, p.job("notes.txt"), "no job")
	o := withStandard(fstest.MapFS{"bundled/job.yml": {Data: []byte(source("bundled", "standard"))}})
	o.Additional = []string{extra, filepath.Join(p.root, "missing"), more, "relative"}
	s := p.open(o).Snapshot()
	testkit.Equal(t, dirs(s), "apple zebra bundled kiwi")
	testkit.Equal(t, summary(s, "bundled"), "standard", "bundled")
	testkit.Need(t, len(s.Errors) == 1, "errors are %v", s.Errors)
	testkit.Equal(t, s.Errors[0].JobName, "broken", "errors are %v", s.Errors)
	testkit.True(t, s.Err("broken") != nil, "errors are %v", s.Errors)
	testkit.True(t, s.Job("broken") == nil, "a broken job is shadowing no other")
	testkit.Equal(t, p.log.Count("relative"), 1, "the relative folder was not logged")
}

// A project's copy of a bundled job that does not load leaves the bundled one in its place, and its fault says what to
// delete. One that loads comes first.
func TestABrokenCopyOfABundledJob(t *testing.T) {
	p := newProject(t)
	p.put("bundled", "name: [")
	c := p.open(withStandard(fstest.MapFS{"bundled/job.yml": {Data: []byte(source("bundled", "standard"))}}))
	s := fresh(t, c)
	testkit.Need(t, summary(s, "bundled") == "standard", "jobs %q, errors %v", dirs(s), s.Errors)
	testkit.Need(t, len(s.Jobs) == 1, "jobs %q, errors %v", dirs(s), s.Errors)
	testkit.Need(t, len(s.Errors) == 1, "jobs %q, errors %v", dirs(s), s.Errors)
	testkit.Contains(t, s.Err("bundled").Diagnostics[0].Message+"\n", "delete the folder "+p.job("bundled")+"\n")
	p.put("bundled", source("bundled", "own"))
	s = fresh(t, c)
	testkit.Equal(t, summary(s, "bundled"), "own", "corrected: jobs %q, errors %v", dirs(s), s.Errors)
	testkit.Need(t, len(s.Jobs) == 1, "corrected: jobs %q, errors %v", dirs(s), s.Errors)
	testkit.Equal(t, len(s.Errors), 0, "corrected: jobs %q, errors %v", dirs(s), s.Errors)

	must(t, os.RemoveAll(p.job("bundled")))
	fresh(t, c)
	serves(t, c, "bundled", "standard")
}

func TestReq001_2_6_ErrorsBesideGoodJobs(t *testing.T) {
	p := newProject(t, "good", "fine")
	p.put("empty", "")
	p.put("huge", "# "+strings.Repeat("x", 1<<20))
	must(t, os.MkdirAll(p.jobFile("directory"), 0o755))
	p.put("bad", "name: bad\nversion: one\n")
	c := p.open(silent())
	s := c.Snapshot()
	testkit.Need(t, dirs(s) == "good" && len(s.Errors) == 4, "jobs %q, errors %v", dirs(s), s.Errors)

	for i, name := range []string{"bad", "directory", "empty", "huge"} {
		e := s.Errors[i]
		testkit.Equal(t, e.JobName, name, "error %d is %+v, want one of %s", i, e, name)
		testkit.Equal(t, e.JobDir, p.job(name), "error %d is %+v, want one of %s", i, e, name)
		testkit.True(t, len(e.Diagnostics) != 0, "error %d is %+v, want one of %s", i, e, name)
	}
	testkit.True(t, len(s.Err("bad").Diagnostics) >= 2, "not every fault is told: %v", s.Err("bad").Diagnostics)
	testkit.Equal(t, p.log.Count("job does not load"), 4, "logged … times")

	fresh(t, c)
	fresh(t, c)
	testkit.Equal(t, p.log.Count("job does not load"), 4, "logged … times after nothing changed")
}

func TestSecondJobOfOneNameIsAnErrorOnTheLater(t *testing.T) {
	p := newProject(t)
	p.put("a", source("same", "first"))
	p.put("b", source("same", "second"))
	c := p.open(silent())
	s := c.Snapshot()
	testkit.Equal(t, names(s), "same=first")
	testkit.Need(t, s.Err("b") != nil, "no error on the later")
	testkit.ContainsAll(t, s.Err("b").Diagnostics.Error(), []string{"job.yml:1:7: name: ", p.job("a"), p.job("b")})
	p.put("b", source("a", "second")) // of the directory's name comes after a job's own
	s = fresh(t, c)
	testkit.Equal(t, len(s.Errors), 0)

	for name, want := range map[string]string{"same": "first", "a": "second", "b": "second", "four": ""} {
		testkit.Equal(t, summary(s, name), want, "%s finds", name)
	}
}

func TestFolderThatAppearsAfterStart(t *testing.T) {
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
			serves(t, c, "late", "came")
			write(t, filepath.Join(extra, "far", "job.yml"), source("far", "came"))
			serves(t, c, "far", "came")
			must(t, os.RemoveAll(p.path(".deepwork")))
			serves(t, c, "late", "")
			p.put("late", source("late", "came again"))
			serves(t, c, "late", "came again")
		})
	}
}

func TestFreshSeesNewAndRenamedJobs(t *testing.T) {
	p := newProject(t)
	c := p.open(silent())
	expect := func(name, want string) {
		t.Helper()
		s := testkit.Get(c.FreshJob(t.Context(), name)).Must(t)
		testkit.Equal(t, summary(s, name), want, "job %s of %s", name, names(s))
	}
	p.put("one", source("one", "first")) // a new job in a new folder
	testkit.Equal(t, names(fresh(t, c)), "one=first")
	p.put("two", source("two", "second"))
	expect("two", "second")
	p.put("one", source("other", "first, renamed")) // still the directory's name
	expect("one", "first, renamed")
	p.put("two", source("one", "second, renamed"))
	p.put("one", source("gone", "first, renamed again"))
	expect("other", "")
	expect("one", "second, renamed")
	must(t, os.Rename(p.job("two"), p.job("deux")))
	expect("one", "second, renamed")
	must(t, os.Rename(p.job("one"), p.job("un")))
	s := fresh(t, c)
	testkit.True(t, dirs(s) == "deux un" && len(s.Errors) == 0, "a renamed directory: %s %v", dirs(s), s.Errors)

	// A plain folder becomes a job.
	must(t, os.MkdirAll(p.job("plain"), 0o755))
	fresh(t, c)
	p.put("plain", source("plain", "now a job"))
	testkit.Equal(t, summary(fresh(t, c), "plain"), "now a job")
}

func lookBeforeTheFile(p *project, c *Catalog) {
	must(p.t, os.MkdirAll(p.job("one"), 0o755))
	fresh(p.t, c)
	p.put("one", source("one", "new"))
}

func lookAtAYoungFile(p *project, c *Catalog) {
	p.put("one", source("one", "new"))
	_, err := c.ask(p.t.Context(), c.state.Load().listings())
	must(p.t, err)
}

// TestFreshSeesPastLooksThatCameBetween is a call whose comparison is with a state that others have replaced
// by the time the owner looks.
func TestFreshSeesPastLooksThatCameBetween(t *testing.T) {
	for name, between := range map[string]func(p *project, c *Catalog){
		"of a directory without its file": lookBeforeTheFile,
		"of a file that is too young":     lookAtAYoungFile,
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
	p := newProject(t, "one", "first")
	c := p.open(silent())
	must(t, os.Chmod(p.job(), 0o111))
	t.Cleanup(func() { must(t, os.Chmod(p.job(), 0o755)) })
	testkit.Equal(t, summary(fresh(t, c), "one"), "first")
	testkit.Equal(t, p.log.Count("cannot be listed"), 1, "not logged once")
}

// The files that jobs name are looked for, but not those of bundled jobs, and an edit of one is an event.
func TestFilesThatJobsName(t *testing.T) {
	p := newProject(t, "one", "fine", "two", "fine")
	for _, name := range []string{"first", "second"} {
		write(t, p.job("two", "steps", name+".md"), "Do it.")
	}
	c := p.open(Options{Standard: bundledJobs()})
	missing := c.Snapshot().Missing()
	testkit.Need(t, len(missing) == 1, "%+v", missing)
	testkit.Equal(t, missing[0].JobName+" in "+missing[0].JobDir, "one in "+p.job("one"))
	testkit.Equal(t, len(missing[0].Diagnostics), 2)

	events := c.Events(t.Context())
	write(t, p.job("two", "steps", "first.md"), "Do it well.")
	<-events
}

func bundledJobs() fstest.MapFS {
	jobs := fstest.MapFS{"notes/readme.md": {Data: []byte("no job")}, "readme.md": {Data: []byte("no job")}}
	for _, name := range []string{"bundled", "other"} {
		jobs[name+"/job.yml"] = &fstest.MapFile{Data: []byte(source(name, "standard"))}
		jobs[name+"/steps/first.md"] = &fstest.MapFile{Data: []byte("Do the first.")}
		jobs[name+"/steps/second.md"] = &fstest.MapFile{Data: []byte("Do the second.")}
	}
	return jobs
}

func withStandard(jobs fs.FS) Options {
	o := silent()
	o.Standard = jobs
	return o
}

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

func TestStandardJobsAreOnDiskBeforeTheyAreNeeded(t *testing.T) {
	p := newProject(t)
	c := p.open(withStandard(bundledJobs()))
	testkit.Equal(t, dirs(c.Snapshot()), "bundled other", "jobs")
	testkit.Fails(t, testkit.Get(os.Stat(p.path(".deepwork"))).Err(), "", "Open has written to the project")
	p.put("own", source("own", "own"))
	testkit.Get(c.FreshJob(t.Context(), "own")).Must(t)
	testkit.Fails(t, testkit.Get(os.Stat(p.standard())).Err(), "", "laid out for a job that is not a standard one")

	j := testkit.Get(c.FreshJob(t.Context(), "bundled")).Must(t).Job("bundled")
	testkit.Equal(t, j.Dir, filepath.Join(p.standard(), "bundled"), "job_dir")
	text, err := job.Instructions(j, j.Step("first"))
	testkit.True(t, err == nil && text == "Do the first.", "instructions: %q, %v", text, err)
	checkLaidOut(t, bundledJobs(), p.standard())
}

func TestStandardJobsAreRewrittenWhereTheyDiffer(t *testing.T) {
	yml := func(p *project) string { return filepath.Join(p.standard(), "bundled", "job.yml") }
	text := func(p *project) string { return filepath.Join(p.standard(), "bundled", "steps", "first.md") }
	for name, spoil := range map[string]func(p *project){
		"edited":            func(p *project) { write(p.t, yml(p), "edited") },
		"truncated":         func(p *project) { must(p.t, os.Truncate(text(p), 3)) },
		"same size":         func(p *project) { write(p.t, text(p), "Do the worst.") },
		"removed":           func(p *project) { must(p.t, os.Remove(text(p))) },
		"all removed":       func(p *project) { must(p.t, os.RemoveAll(filepath.Dir(p.standard()))) },
		"a link for a file": func(p *project) { relink(p, p.path("nowhere"), text(p)) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t)
			c := p.open(withStandard(bundledJobs()))
			testkit.Get(c.FreshJob(t.Context(), "bundled")).Must(t)

			// By another server that starts on it, too.
			for _, c := range []*Catalog{c, p.open(withStandard(bundledJobs()))} {
				spoil(p)
				checkLaidOut(t, bundledJobs(),
					filepath.Dir(testkit.Get(c.FreshJob(t.Context(), "bundled")).Must(t).Job("bundled").Dir))
			}
		})
	}
}

func TestStandardJobsThatCannotBeLaidOut(t *testing.T) {
	beyond := t.TempDir()
	for name, prepare := range map[string]func(p *project){
		"a link out of the folder": func(p *project) { link(p, beyond, p.standard()) },
		"a file for the folder":    func(p *project) { must(t, os.WriteFile(filepath.Dir(p.standard()), nil, 0o444)) },
	} {
		p := newProject(t)
		prepare(p)
		c := p.open(withStandard(bundledJobs()))
		testkit.Equal(t, dirs(fresh(t, c)), "bundled other", name)
		testkit.Fails(t, testkit.Get(c.FreshJob(t.Context(), "bundled")).Err(), "bundled", name)
	}
	list := testkit.Get(os.ReadDir(beyond)).Must(t)
	testkit.Equal(t, len(list), 0, "written outside: %v", list)
}

func TestTwoServersLayOutAtOnce(t *testing.T) {
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

// A save is one way in which editors replace the job.yml of the job "writing".
type save struct {
	name     string
	link, to string // a symlink in the project, and where it leads; "" means a plain file
	first    string // where the first version is, if not in the project
	save     func(p *project, next string)
}

// moved saves by writing a file, or one in a folder, that is renamed into the place of what is there; a
// folder is moved aside.
func moved(temp, file, there string) func(p *project, next string) {
	return func(p *project, next string) {
		write(p.t, p.path(temp, file), next)
		if file != "" {
			must(p.t, os.Rename(p.path(there), p.path("old-"+rand.Text())))
		}
		must(p.t, os.Rename(p.path(temp), p.path(there)))
	}
}

// linked writes a file and leads a symlink to a target.
func linked(file, target, name string) func(p *project, next string) {
	return func(p *project, next string) {
		write(p.t, p.path(file), next)
		if target != "" {
			relink(p, absolute(p, target), p.path(name))
		}
	}
}

// absolute makes a path of the project absolute, but one that begins with "..".
func absolute(p *project, path string) string {
	if strings.HasPrefix(path, "..") {
		return filepath.FromSlash(path)
	}
	return p.path(path)
}

const (
	savedJobs = ".deepwork/jobs"
	savedDir  = savedJobs + "/writing"
	savedFile = savedDir + "/job.yml"
	store     = "../../../store/" // from savedDir
)

var saves = []save{
	{name: "rename", save: moved(savedFile+".tmp", "", savedFile)},
	{name: "rename from elsewhere", save: moved("elsewhere.yml", "", savedFile)},
	{name: "truncate and write", save: func(p *project, next string) { tearing(p.t, p.path(savedFile), next) }},
	{name: "delete and create", save: func(p *project, next string) {
		must(p.t, os.Remove(p.path(savedFile)))
		write(p.t, p.path(savedFile), next)
	}},
	{name: "backup by rename, then create", save: func(p *project, next string) {
		must(p.t, os.Rename(p.path(savedFile), p.path(savedFile+"~")))
		write(p.t, p.path(savedFile), next)
	}},
	{"relative symlink swap", savedFile, store + "1/job.yml", "store/1/job.yml",
		linked("store/2/job.yml", store+"2/job.yml", savedFile)},
	{"absolute symlink swap", savedFile, "store/1/job.yml", "store/1/job.yml",
		linked("store/2/job.yml", "store/2/job.yml", savedFile)},
	{"write through a symlink to another folder", savedFile, "store/1/job.yml", "store/1/job.yml",
		linked("store/1/job.yml", "", "")},
	{"symlinked directory swap", savedDir, "store/a", "store/a/job.yml",
		linked("store/b/job.yml", "store/b", savedDir)},
	{"write inside a symlinked directory", savedDir, "store/a", "store/a/job.yml", linked("store/a/job.yml", "", "")},
	{"symlinked jobs folder swap", savedJobs, "store/a", "store/a/writing/job.yml",
		linked("store/b/writing/job.yml", "store/b", savedJobs)},
	{name: "directory swapped by rename", save: moved("new", "job.yml", savedDir)},
	{name: "jobs folder swapped by rename", save: moved(".deepwork/new", "writing/job.yml", savedJobs)},
	{name: "deepwork folder swapped by rename", save: moved("new", "jobs/writing/job.yml", ".deepwork")},
	{name: "deepwork folder removed and made anew", save: func(p *project, next string) {
		must(p.t, os.RemoveAll(p.path(".deepwork")))
		write(p.t, p.path(savedFile), next)
	}},
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
func eachSave(t *testing.T, name string, test func(t *testing.T, p *project, s save)) {
	for _, s := range saves {
		t.Run(name+"/"+s.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && s.link != "" {
				t.Skip("symlinks need a privilege on Windows")
			}
			p := newProject(t)
			write(t, p.path(cmp.Or(s.first, savedFile)), source("writing", "one"))
			if s.link != "" {
				link(p, absolute(p, s.to), p.path(s.link))
			}
			test(t, p, s)
		})
	}
}

func TestEverySaveIsHeardByTheWatcherAndSeenByThePoller(t *testing.T) {
	for name, o := range map[string]Options{
		"watcher": {Debounce: 5 * time.Millisecond, Poll: time.Hour},
		"poller":  {NoWatch: true, Poll: 20 * time.Millisecond},
	} {
		eachSave(t, name, func(t *testing.T, p *project, s save) {
			c := p.open(o)
			testkit.Equal(t, summary(c.Snapshot(), "writing"), "one", "at first")

			// More than once: what was watched has been replaced by the first.
			for _, version := range []string{"two", "three", "four"} {
				s.save(p, source("writing", version))
				serves(t, c, "writing", version)
			}
			write(t, p.path(savedFile), source("writing", "five"))
			serves(t, c, "writing", "five")
		})
	}
}

func TestReadYourOwnWritesWithoutEvents(t *testing.T) {
	eachSave(t, "calls", func(t *testing.T, p *project, s save) {
		all, one := p.open(silent()), p.open(silent())
		for _, version := range []string{"two", "three", "four"} {
			s.save(p, source("writing", version))
			a := summary(fresh(t, all), "writing")
			b := summary(testkit.Get(one.FreshJob(t.Context(), "writing")).Must(t), "writing")
			testkit.True(t, a == version && b == version, "Fresh serves %q, and FreshJob %q, not %q", a, b, version)
		}
	})
}
