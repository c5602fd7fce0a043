package worktree

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecoverUndoesWhatNobodyKnowsAndKeepsItsWork(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new", "work")
	if did, err := k.Recover(t.Context(), func(a string) bool { return a == attemptID }); len(did) > 0 || err != nil {
		t.Errorf("a known attempt: %v, %v", did, err)
	}
	did, err := k.Recover(t.Context(), func(string) bool { return false })
	if err != nil || len(did) != 2 || !strings.Contains(did[1], rescueRefs+attemptID) {
		t.Errorf("did %v, %v", did, err)
	}
	if show(t, repo, rescueRefs+attemptID, "new") != "work" {
		t.Error("the work is lost")
	}
	nothingLeft(t, k)
	sound(t, repo, 0)
}

// A git that was killed while it added a worktree keeps git from working in the whole repository.
func TestRecoverRemovesAHalfMadeWorktree(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	admin := adminOf(filepath.Join(repo, ".git"), create(t, k, repo))
	j, err := k.load(attemptID)
	must(t, err)
	j.Phase = creating
	must(t, k.save(j))
	write(t, admin, "locked", initializing)
	write(t, admin, "commondir", "")
	if _, err := tryGit(repo, "rev-list", "--all"); err == nil {
		t.Skip("this git does without the file")
	}
	if did, err := k.Recover(t.Context(), func(string) bool { return false }); err != nil || len(did) != 1 {
		t.Errorf("did %v, %v", did, err)
	}
	nothingLeft(t, k)
	sound(t, repo, 0)
	gitIn(t, repo, "rev-list", "--all")
}

// A git that was killed while it changed the attempt's branch leaves the lock file of that branch.
func TestRecoverBreaksTheLockOfItsBranch(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	create(t, k, repo)
	j, err := k.load(attemptID)
	must(t, err)
	lock := filepath.Join(".git", "refs", "heads", j.Branch+".lock")
	write(t, repo, lock, "")
	if did, err := k.Recover(t.Context(), func(string) bool { return false }); err != nil || len(did) != 1 {
		t.Errorf("did %v, %v", did, err)
	}
	nothingLeft(t, k)
	sound(t, repo, 0)
	if isThere(filepath.Join(repo, lock)) {
		t.Error("the lock file was left")
	}
}

func TestRecoverLeavesTheOthersAtWorkAlone(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	k.at = func(point string) {
		if point != "copied web" {
			return
		}
		if did, err := New(Options{Dir: k.dir}).Recover(t.Context(), func(string) bool { return false }); len(did) > 0 || err != nil {
			t.Errorf("did %v, %v", did, err)
		}
	}
	if path := create(t, k, repo); !isThere(filepath.Join(path, "a.txt")) {
		t.Error("the worktree is gone")
	}
}

func TestRecoverGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	if _, err := k.Create(t.Context(), "good", branchName, []Tree{tree(repo)}, nil); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"broken": "{", "newer": `{"version": 99, "attempt": "newer"}`} {
		write(t, k.journal, name+".json", text)
	}
	_, err := k.Recover(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "broken") || !strings.Contains(err.Error(), "99") {
		t.Errorf("got %v", err)
	}
	if isThere(filepath.Join(k.dir, "good")) {
		t.Error("another attempt's fault hindered this one")
	}
	if got := read(t, k.journal, "newer.json"); !strings.Contains(got, "99") {
		t.Error("a newer journal was overwritten")
	}
	for _, attempt := range []string{"broken", "newer"} {
		if _, err := k.Create(t.Context(), attempt, branchName, []Tree{tree(repo)}, nil); err == nil {
			t.Errorf("%s was made", attempt)
		}
		if _, _, err := k.Remove(t.Context(), attempt, false, nil); err == nil {
			t.Errorf("%s was removed", attempt)
		}
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	k, _ := newKeeper(t)
	unlock, err := k.lockAttempt(t.Context(), attemptID)
	must(t, err)
	defer unlock()
	other := New(Options{Dir: k.dir})
	for name, waiter := range map[string]*Keeper{"this process": k, "another": other} {
		ctx, cancel := contextThatEnds(t, 50*time.Millisecond)
		if _, _, err := waiter.Remove(ctx, attemptID, false, nil); !errors.Is(err, ctx.Err()) || err == nil {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
	}
}
