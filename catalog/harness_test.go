package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; it never waits that
// long where the code is right.
const patience = time.Minute

// source is a job.yml; its summary distinguishes the versions.
func source(name, summary string) string {
	return fmt.Sprintf(`name: %s
version: "1.0.0"
summary: %q
common_job_info_provided_to_all_steps_at_runtime: |
  What every step knows.
steps:
  - id: first
    name: First
    description: The first step.
    instructions_file: steps/first.md
    outputs:
      report:
        type: file
        description: A report.
        required: true
    reviews: []
  - id: second
    name: Second
    description: The second step.
    instructions_file: steps/second.md
    inputs:
      - file: report
        from_step: first
    outputs: {}
    dependencies: [first]
    reviews: []
workflows:
  - name: main
    summary: All of it.
    steps: [first, second]
`, name, summary)
}

// A project is a directory with job folders, and what a catalog logs about it.
type project struct {
	t    *testing.T
	root string
	log  *testkit.Log
}

func newProject(t *testing.T) *project {
	t.Helper()
	return &project{t: t, root: t.TempDir(), log: new(testkit.Log)}
}

// path makes a path below the root.
func (p *project) path(elem ...string) string {
	return filepath.Join(append([]string{p.root}, elem...)...)
}

// standard is where the standard jobs are laid out.
func (p *project) standard() string { return filepath.Join(p.root+"-state", "standard_jobs") }

// jobFile is the path of a job's file in the project's own folder.
func (p *project) jobFile(dir string) string { return p.path(".deepwork", "jobs", dir, job.FileName) }

// put writes a job of the project.
func (p *project) put(dir, content string) {
	p.t.Helper()
	write(p.t, p.jobFile(dir), content)
}

// open opens a catalog that the test's end closes.
func (p *project) open(o Options) *Catalog {
	p.t.Helper()
	if o.Root == "" {
		o.Root = p.root
	}
	o.StandardDir = p.standard()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c, err := Open(p.t.Context(), o)
	must(p.t, err)
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			p.t.Error(err)
		}
	})
	return c
}

// silent is a catalog that is notified of nothing.
func silent() Options { return Options{NoWatch: true, Poll: time.Hour} }

var write = testkit.Write

var must = testkit.Must

// fresh is Fresh that does not fail.
func fresh(t *testing.T, c *Catalog) *Snapshot {
	t.Helper()
	s, err := c.Fresh(t.Context())
	must(t, err)
	return s
}

// summary is how a snapshot serves a job; "" for not at all.
func summary(s *Snapshot, name string) string {
	if j := s.Job(name); j != nil {
		return j.Summary
	}
	return ""
}

// eventually waits for a published snapshot that is as wanted.
func eventually(t *testing.T, c *Catalog, what string, ok func(*Snapshot) bool) *Snapshot {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	changed := c.Changes(ctx)
	for {
		if s := c.Snapshot(); ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s := c.Snapshot()
			t.Fatalf("never seen: %s; version %d, jobs %s, errors %v", what, s.Version, names(s), s.Errors)
		}
	}
}

// names lists the jobs of a snapshot as name=summary.
func names(s *Snapshot) string {
	var out []string
	for _, j := range s.Jobs {
		out = append(out, j.Name+"="+j.Summary)
	}
	return strings.Join(out, " ")
}
