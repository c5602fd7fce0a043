package attempt

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func testRoster(t *testing.T, dir string) *roster {
	r := newRoster(dir, slog.New(slog.DiscardHandler))
	t.Cleanup(r.leave)
	return r
}

func TestRoster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	a, b := testRoster(t, dir), testRoster(t, dir)
	if b.alive(a.own) {
		t.Error("a server is alive before it entered")
	}
	must(t, a.enter())
	must(t, a.enter())
	if !b.alive(a.own) || !a.alive(a.own) {
		t.Error("a server looks dead")
	}
	for _, id := range []string{"", "../../x", strings.Repeat("0", 16), "0123"} {
		if a.alive(id) {
			t.Errorf("%q is alive", id)
		}
	}
	must(t, os.Mkdir(a.path(strings.Repeat("1", 16)), 0o700))
	if a.alive(strings.Repeat("1", 16)) {
		t.Error("a folder is alive")
	}
	// What a dead server left is swept by the next; what is not a server's is not.
	dead := a.path(strings.Repeat("d", 16))
	must(t, os.WriteFile(dead, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "note"), nil, 0o600))
	must(t, b.enter())
	if exists(dead) || !exists(filepath.Join(dir, "note")) || !exists(a.path(a.own)) {
		t.Error("swept wrongly")
	}
	a.leave()
	if b.alive(a.own) || exists(a.path(a.own)) || a.alive(a.own) {
		t.Error("a server that left is alive")
	}
	if a.enter() == nil {
		t.Error("it entered again")
	}
}

// Whatever is removed under a running server, it makes its lock file anew.
func TestRosterVanishes(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("open files cannot be removed here")
	}
	dir := filepath.Join(t.TempDir(), "board")
	a, b := testRoster(t, dir), testRoster(t, dir)
	must(t, a.enter())
	for _, path := range []string{a.path(a.own), dir, filepath.Dir(dir)} {
		must(t, os.RemoveAll(path))
		if b.alive(a.own) {
			t.Error("it is alive without a lock file")
		}
		must(t, a.enter())
		if !b.alive(a.own) {
			t.Errorf("%s was removed, and the server looks dead", path)
		}
	}
}

// Many servers enter, ask and sweep at the same time, and none looks dead that
// has entered.
func TestRosterManyAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "board")
	all := make([]*roster, 20)
	for i := range all {
		all[i] = testRoster(t, dir)
	}
	var wg sync.WaitGroup
	for i, r := range all {
		wg.Go(func() {
			if err := r.enter(); err != nil {
				t.Error(err)
			}
			for range 20 {
				all[(i+1)%len(all)].alive(r.own)
				r.alive(all[(i+7)%len(all)].own)
				r.mu.Lock()
				r.sweep()
				r.mu.Unlock()
			}
		})
	}
	wg.Wait()
	for _, a := range all {
		for _, b := range all {
			if !a.alive(b.own) {
				t.Error("a server looks dead")
			}
		}
	}
}

func TestIgnore(t *testing.T) {
	root := t.TempDir()
	read := func(parts ...string) string {
		text, err := os.ReadFile(filepath.Join(append([]string{root}, parts...)...))
		must(t, err)
		return string(text)
	}
	must(t, os.MkdirAll(filepath.Join(root, ".deepwork"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, ".deepwork", ".gitignore"), []byte("mine\ntmp/"), 0o644))
	for range 2 {
		must(t, ignore(root, filepath.Join(root, ".deepwork", "worktrees")))
	}
	if got := read(".deepwork", ".gitignore"); got != "mine\ntmp/\nworktrees/\nboard.db*\nlogs/\n" {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(root, ".deepwork", "trees", "here")))
	if got := read(".deepwork", ".gitignore"); !strings.HasSuffix(got, "/trees/here/\n") {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(root, "trees")))
	if got := read("trees", ".gitignore"); got != "*\n" {
		t.Errorf("%q", got)
	}
	must(t, ignore(root, filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")))
	if exists(filepath.Join(filepath.Dir(root), filepath.Base(root)+"-trees")) {
		t.Error("a folder outside the project was made")
	}
}
