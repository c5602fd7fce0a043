package catalog

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

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
		f, err := os.OpenFile(p.jobFile(savedDir), os.O_WRONLY|os.O_TRUNC, 0)
		must(p.t, err)
		for len(next) > 0 {
			n := min(100, len(next))
			_, err := f.WriteString(next[:n])
			must(p.t, err)
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
	}, save: func(p *project, next string) {
		write(p.t, p.path("store", "a", "job.yml"), next)
	}},
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
		if got := summary(c.Snapshot(), "writing"); got != "one" {
			t.Fatalf("at first: %q", got)
		}
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
	heardOf(t, Options{Debounce: 5 * time.Millisecond, Poll: time.Hour})
}

func TestEverySaveIsSeenByThePoller(t *testing.T) {
	heardOf(t, Options{NoWatch: true, Poll: 20 * time.Millisecond})
}

func TestReadYourOwnWritesWithoutEvents(t *testing.T) {
	eachSave(t, func(t *testing.T, p *project, s save) {
		all, one := p.open(silent()), p.open(silent())
		for _, version := range []string{"two", "three", "four"} {
			s.save(p, source("writing", version))
			got, err := one.FreshJob(t.Context(), "writing")
			must(t, err)
			if a, b := summary(fresh(t, all), "writing"), summary(got, "writing"); a != version || b != version {
				t.Errorf("Fresh serves %q, and FreshJob %q, not %q", a, b, version)
			}
		}
	})
}
