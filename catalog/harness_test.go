package catalog

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come; it never waits that long where the code is right.
const patience = time.Minute

// source is a job.yml; its summary distinguishes the versions.
func source(name, summary string) string {
	return fmt.Sprintf(`name: %s
version: "1.0.0"
summary: %q
common_job_info_provided_to_all_steps_at_runtime: |
  What every step knows.
steps:
  - {id: first, name: First, description: The first step., instructions_file: steps/first.md, outputs: {}, reviews: []}
  - {id: second, name: Second, description: The second step., instructions_file: steps/second.md, dependencies: `+
		`[first], outputs: {}, reviews: []}
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

// newProject has jobs that each have the name of their directory: names and summaries in turn. A test that
// calls it runs beside others.
func newProject(t *testing.T, jobs ...string) *project {
	t.Helper()
	if _, again := parallel.LoadOrStore(t, true); !again {
		t.Parallel()
	}
	p := &project{t: t, root: t.TempDir(), log: new(testkit.Log)}
	for i := 0; i < len(jobs); i += 2 {
		p.put(jobs[i], source(jobs[i], jobs[i+1]))
	}
	return p
}

var parallel sync.Map // the tests that have called newProject

func (p *project) path(elem ...string) string {
	return filepath.Join(append([]string{p.root}, elem...)...)
}

func (p *project) job(elem ...string) string {
	return filepath.Join(append([]string{p.root, ".deepwork", "jobs"}, elem...)...)
}

func (p *project) standard() string { return filepath.Join(p.root+"-state", "standard_jobs") }

func (p *project) jobFile(dir string) string { return p.job(dir, job.FileName) }

func (p *project) put(dir, content string) {
	p.t.Helper()
	write(p.t, p.jobFile(dir), content)
}

func (p *project) open(o Options) *Catalog {
	p.t.Helper()
	if o.Root == "" {
		o.Root = p.root
	}
	o.StandardDir = p.standard()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	c := testkit.Get(Open(p.t.Context(), o)).Must(p.t)
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		testkit.Works(p.t, c.Close(ctx))
	})
	return c
}

// silent is a catalog that is notified of nothing.
func silent() Options { return Options{NoWatch: true, Poll: time.Hour} }

var write = testkit.Write

var must = testkit.Must

func fresh(t *testing.T, c *Catalog) *Snapshot {
	t.Helper()
	return testkit.Get(c.Fresh(t.Context())).Must(t)
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
	s := c.Snapshot()
	for ; !ok(s); s = c.Snapshot() {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("never seen: %s; version %d, jobs %s, errors %v", what, s.Version, names(s), s.Errors)
		}
	}

	return s
}

// serves waits until a job is served in a version, "" for not at all.
func serves(t *testing.T, c *Catalog, name, version string) *Snapshot {
	t.Helper()
	return eventually(t, c, name+" "+version, func(s *Snapshot) bool { return summary(s, name) == version })
}

// names lists the jobs of a snapshot as name=summary.
func names(s *Snapshot) string {
	var out []string
	for _, j := range s.Jobs {
		out = append(out, j.Name+"="+j.Summary)
	}
	return strings.Join(out, " ")
}

// A fakeNotifier imitates a system that runs out of watches or drops events, which cannot be brought about in a test.
type fakeNotifier struct {
	ev      chan fsnotify.Event
	errs    chan error
	openErr error
	room    int // how many watches there are; negative: enough
	full    error

	mu     sync.Mutex
	dirs   []string
	adds   map[string]int
	closed bool
}

func newFakeNotifier() *fakeNotifier {
	return &fakeNotifier{ev: make(chan fsnotify.Event), errs: make(chan error), room: -1, adds: make(map[string]int)}
}

func (n *fakeNotifier) open() (notifier, error) { return n, n.openErr }

func (n *fakeNotifier) Add(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.adds[dir]++
	if slices.Contains(n.dirs, dir) {
		return nil
	}
	if n.room >= 0 && len(n.dirs) >= n.room {
		return n.full
	}
	n.dirs = append(n.dirs, dir)
	return nil
}

func (n *fakeNotifier) Remove(dir string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dirs = slices.DeleteFunc(n.dirs, func(d string) bool { return d == dir })
	return nil
}

func (n *fakeNotifier) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	return nil
}

func (n *fakeNotifier) has(dir string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.dirs, dir)
}

// await waits until a directory has been added so many times.
func (n *fakeNotifier) await(t *testing.T, dir string, count int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%s added %d times", dir, count), func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.adds[dir] >= count
	})
}

func (n *fakeNotifier) events() <-chan fsnotify.Event { return n.ev }
func (n *fakeNotifier) errors() <-chan error          { return n.errs }
