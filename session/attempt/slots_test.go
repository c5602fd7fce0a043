package attempt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/catalog/task"
	"deepwork/session/store/postgres/pgtest"
)

// 50 attempts at once on 4 slots of two servers all end,
// never more than 4 run, nothing is left locked, and git is whole.
func TestFiftyAttemptsOnFourSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a hundred processes")
	}
	const slots = 4
	attempts := manyAttempts
	if pgtest.OnPostgres() { // what the store does with many at once, its own tests ask
		attempts = 16
	}
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = slots })
	dir := filepath.Join(p.Root, "..", "slots")
	must(t, os.Mkdir(dir, 0o755))
	one, two := p.open(), p.open()
	v := one.newTask("! slot "+dir, "! write file.txt x", "! commit work")
	began := time.Now()
	ids := make([]string, attempts)
	var wg sync.WaitGroup
	for i := range ids {
		s := []*server{one, two}[i%2]
		wg.Go(func() { ids[i] = s.begin(v).AttemptID })
	}
	wg.Wait()
	made := time.Since(began)
	branches := map[string]bool{}
	for _, id := range ids {
		r := one.ends(id)
		if r.State != "completed" || r.Repos[0].Ahead != 1 {
			t.Errorf("%+v: %s", r, deref(r.Error))
		}
		branches[r.WorkspaceBranch] = true
	}
	t.Logf("%d attempts made in %v, ended after %v", attempts, made.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if len(branches) != attempts {
		t.Errorf("%d attempts share %d branches", attempts, len(branches))
	}
	saw, most := 0, 0
	marks, err := filepath.Glob(filepath.Join(dir, "saw-*"))
	must(t, err)
	for _, m := range marks {
		n := 0
		fmt.Sscanf(filepath.Base(m), "saw-%d-", &n)
		saw, most = saw+1, max(most, n)
	}
	if saw != attempts || most > slots || most < 2 {
		t.Errorf("%d agents ran, %d at once at most", saw, most)
	}
	eventually(t, func() string { // they count when the board has it
		if a, b := one.Stats(), two.Stats(); a.Ended[task.Completed]+b.Ended[task.Completed] != uint64(attempts) || a.Started+b.Started != uint64(attempts) {
			return fmt.Sprintf("the servers count %+v and %+v", a, b)
		}
		return ""
	})
	if out := p.Git(p.Root, "fsck", "--full", "--strict"); strings.Contains(out, "error") || strings.Contains(out, "missing") {
		t.Errorf("git fsck: %s", out)
	}
	if out := p.Git(p.Root, "worktree", "list", "--porcelain"); strings.Contains(out, "locked") || strings.Contains(out, "prunable") || strings.Count(out, "worktree ") != attempts+1 {
		t.Errorf("git worktree list: %s", out)
	}
	if locks, _ := filepath.Glob(filepath.Join(p.Root, ".git", "worktrees", "*", "*.lock")); locks != nil {
		t.Errorf("lock files are left: %v", locks)
	}
}

// What waits is run in the order in which it came.
func TestSlotsAreGivenInOrder(t *testing.T) {
	p := newProject(t)
	p.Configure(func(c *config.Config) { c.Attempts.MaxConcurrent = 1 })
	hold, order := filepath.Join(p.Root, "..", "hold"), filepath.Join(p.Root, "..", "order")
	must(t, os.Mkdir(order, 0o755))
	s := p.open()
	ids := []string{s.begin(s.newTask("! await " + hold)).AttemptID}
	s.reaches(ids[0], task.Running)
	for i := range 4 {
		ids = append(ids, s.begin(s.newTask("! touch "+filepath.Join(order, fmt.Sprint(i)))).AttemptID)
	}
	for i, id := range ids[1:] {
		if notice := deref(s.get(id).Notice); !strings.Contains(notice, fmt.Sprintf("and %d wait before it", i)) {
			t.Errorf("the %d. waits with %q", i, notice)
		}
	}
	must(t, os.WriteFile(hold, nil, 0o644))
	var last time.Time
	for i, id := range ids[1:] {
		s.ends(id)
		fi, err := os.Stat(filepath.Join(order, fmt.Sprint(i)))
		must(t, err)
		if !fi.ModTime().After(last) {
			t.Errorf("the %d. ran before the one before it", i)
		}
		last = fi.ModTime()
	}
}
