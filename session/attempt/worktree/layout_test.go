package worktree

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

// newVictim makes a folder outside, of which nothing may be touched. The result checks it.
func newVictim(t *testing.T) (dir string, untouched func()) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "home")
	write(t, dir, "keep.txt", "mine")
	write(t, dir, "web/keep.txt", "mine")
	write(t, dir, attemptID+"/web/keep.txt", "mine")
	list := func() (all string) {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			all += path + "\n"
			return err
		})
		return all
	}
	before := list()
	return dir, func() {
		t.Helper()
		testkit.Equal(t, list(), before)
	}
}

func link(t *testing.T, target, at string) {
	t.Helper()
	must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.RemoveAll(at)))
	if err := os.Symlink(target, at); err != nil {
		t.Skip("no symlinks here:", err)
	}
}

// Where a link is in the place of a folder, whatever was to be done is refused, and
// nothing is touched where it leads to.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at   string
		made bool // the attempt has its worktree before
	}{
		{at: ".journal"}, {at: attemptID}, {at: attemptID + "/web"},
		{".journal", true}, {attemptID, true}, {attemptID + "/web", true},
	} {
		for _, private := range []bool{false, true} {
			if private && c.at == ".journal" && c.made {
				continue // the journal would be gone
			}
			t.Run(strings.ReplaceAll(c.at, "/", "_"), func(t *testing.T) {
				repo, home := newRepo(t), ""
				home, untouched := newVictim(t)
				k, _ := newKeeper(t)
				if !private {
					k.journal = t.TempDir()
				}
				base := gitIn(t, repo, "rev-parse", "HEAD")
				path := filepath.Join(k.folder(attemptID), "web")
				if c.made {
					create(t, k, repo)
				}
				link(t, home, filepath.Join(k.dir, filepath.FromSlash(c.at)))
				errs := map[string]error{}
				if !c.made {
					_, errs["create"] = k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)
				} else {
					_, _, errs["remove"] = k.Remove(t.Context(), attemptID, false, nil)
					_, errs["recover"] = k.Recover(t.Context(), func(string) bool { return false })
					_, errs["status"] = k.Status(t.Context(), path, base, "main")
					_, _, errs["diff"] = k.Diff(t.Context(), path, base, "main", nil, 0)
					errs["check"] = k.Check(attemptID, attemptID, []string{path})
					if c.at == attemptID+"/web" { // that it is no folder is known before
						delete(errs, "status")
						delete(errs, "diff")
					}
				}
				for what, err := range errs {
					testkit.True(t, (errors.Is(err, ErrNotOurs) || what == "diff" || what == "status") && err != nil, "%s: %v", what, err)
				}
				r := testkit.Get(k.Inspect(t.Context(), nil)).Must(t)
				testkit.True(t, !c.made || len(r.Findings) != 0, "inspected: %+v", r)
				untouched()
				testkit.Equal(t, strings.Count(gitIn(t, repo, "worktree", "list"), "\n") > 0, c.made, "there are worktrees")
			})
		}
	}
}

// What is in a worktree's .git file is no evidence: the journal says whose it is.
func TestTheJournalSaysWhoseAWorktreeIs(t *testing.T) {
	t.Parallel()
	repo, other := newRepo(t), newRepo(t)
	write(t, other, "secret.txt", "x")
	base := commit(t, other, "secret")
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	gitIn(t, other, "worktree", "add", "-q", "--detach", path+"-2", "main")
	write(t, path, ".git", read(t, path+"-2", ".git"))
	at := gitIn(t, other, "rev-parse", "--path-format=absolute", "--git-common-dir")
	write(t, at, "worktrees/web-2/gitdir", filepath.Join(path, ".git")+"\n")
	write(t, path, "new.txt", "work")
	st, err := k.Status(t.Context(), path, base, "main")
	testkit.True(t, err == nil && strings.Join(st.Changed, " ") == "new.txt", "%+v, %v", st, err)
	admin := adminOf(filepath.Join(repo, ".git"), path)
	write(t, admin, "commondir", at+"\n")
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), path, base, "main")).Err(), ErrNotOurs, "with another commondir")
	if _, _, err = k.Remove(t.Context(), attemptID, false, nil); !errors.Is(err, ErrNotOurs) {
		t.Errorf("with another commondir: %v", err)
	}
	write(t, admin, "commondir", "../..\n")
	kept, _, err := k.Remove(t.Context(), attemptID, true, nil)
	testkit.True(t, err == nil && len(kept) != 0 && show(t, repo, kept[0].Commit, "new.txt") == "work", "%+v, %v", kept, err)
	testkit.Equal(t, gitIn(t, other, "for-each-ref", "refs/deepwork"), "", "the other repository")
	// Without a journal nothing is ours, whatever a .git file says.
	stray := filepath.Join(k.dir, journaledAttempt, "web")
	gitIn(t, repo, "worktree", "add", "-q", "--detach", stray)
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), stray, "", "main")).Err(), ErrNoWorktree, "a worktree of no journal")
	testkit.FailsWith(t, k.Check(journaledAttempt, journaledAttempt, []string{stray}), ErrNotOurs, "a worktree of no journal")
}

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
	testkit.True(t, err == nil && len(did) == 2 && strings.Contains(did[1], rescueRefs+attemptID), "did %v, %v", did, err)
	testkit.Equal(t, show(t, repo, rescueRefs+attemptID, "new"), "work", "the work is lost")
	nothingLeft(t, k)
	sound(t, repo, 0)
}

// A git that was killed while it added a worktree keeps git from working in the whole repository.
func TestRecoverRemovesAHalfMadeWorktree(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	admin := adminOf(filepath.Join(repo, ".git"), create(t, k, repo))
	j := testkit.Get(k.load(attemptID)).Must(t)
	j.Phase = creating
	must(t, k.save(j))
	write(t, admin, "locked", initializing)
	write(t, admin, "commondir", "")
	if _, err := tryGit(repo, "rev-list", "--all"); err == nil {
		t.Skip("this git does without the file")
	}
	testkit.Equal(t, len(testkit.Get(k.Recover(t.Context(), func(string) bool { return false })).Must(t)), 1)
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
	j := testkit.Get(k.load(attemptID)).Must(t)
	lock := filepath.Join(".git", "refs", "heads", j.Branch+".lock")
	write(t, repo, lock, "")
	testkit.Equal(t, len(testkit.Get(k.Recover(t.Context(), func(string) bool { return false })).Must(t)), 1)
	nothingLeft(t, k)
	sound(t, repo, 0)
	testkit.True(t, !isThere(filepath.Join(repo, lock)), "the lock file was left")
}

func TestRecoverLeavesTheOthersAtWorkAlone(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	k.at = func(point string) {
		if point != "copied web" {
			return
		}
		did := testkit.Get(New(Options{Dir: k.dir}).Recover(t.Context(), func(string) bool { return false })).Must(t)
		testkit.True(t, len(did) == 0, "did %v", did)
	}
	path := create(t, k, repo)
	testkit.True(t, isThere(filepath.Join(path, "a.txt")), "the worktree is gone")
}

func TestRecoverGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	testkit.Get(k.Create(t.Context(), "good", branchName, []Tree{tree(repo)}, nil)).Must(t)
	for name, text := range map[string]string{"broken": "{", "newer": `{"version": 99, "attempt": "newer"}`} {
		write(t, k.journal, name+".json", text)
	}
	_, err := k.Recover(t.Context(), nil)
	testkit.True(t, err != nil && strings.Contains(err.Error(), "broken") && strings.Contains(err.Error(), "99"), "got %v", err)
	testkit.True(t, !isThere(filepath.Join(k.dir, "good")), "another attempt's fault hindered this one")
	testkit.Contains(t, read(t, k.journal, "newer.json"), "99", "a newer journal was overwritten")
	for _, attempt := range []string{"broken", "newer"} {
		testkit.Fails(t, testkit.Get(k.Create(t.Context(), attempt, branchName, []Tree{tree(repo)}, nil)).Err(), "", "%s was made", attempt)
		if _, _, err := k.Remove(t.Context(), attempt, false, nil); err == nil {
			t.Errorf("%s was removed", attempt)
		}
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	k, _ := newKeeper(t)
	unlock := testkit.Get(k.lockAttempt(t.Context(), attemptID)).Must(t)
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

// What is not as the board says is a finding with what to do.
func TestInspectComparesWorktreesWithTheBoard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(repo, path string, e *Expected) error
		want   string
	}{
		"nothing":        {func(string, string, *Expected) error { return nil }, ""},
		"no base":        {func(_, _ string, e *Expected) error { e.Repos[0].BaseCommit = new(strings.Repeat("f", 40)); return nil }, "is not in the repository"},
		"no worktree":    {func(_, path string, _ *Expected) error { return os.RemoveAll(path) }, "is gone; commits of it are on branch " + branchName},
		"no repository":  {func(repo, _ string, _ *Expected) error { return os.RemoveAll(repo) }, "cannot be used"},
		"unknown to git": {func(repo, _ string, _ *Expected) error { return os.RemoveAll(filepath.Join(repo, ".git", "worktrees")) }, "does not know this worktree"},
		"no branch": {func(repo, _ string, _ *Expected) error {
			_, err := tryGit(repo, "update-ref", "-d", "refs/heads/"+branchName)
			return err
		}, "is on a branch or a commit that is not in the repository"},
		"not on the board": {func(_, _ string, e *Expected) error { e.ID = "another"; e.Repos = nil; return nil }, "which is not on the board"},
		"being deleted":    {func(_, path string, e *Expected) error { e.Deleting = true; return os.RemoveAll(path) }, ""},
	} {
		repo := newRepo(t)
		k, _ := newKeeper(t)
		e := Expected{Attempt: task.Attempt{ID: attemptID, Branch: branchName, Situation: task.Situation{State: task.Running}}}
		base := gitIn(t, repo, "rev-parse", "HEAD")
		path := create(t, k, repo)
		e.Workspace = filepath.Dir(path)
		e.Repos = []task.AttemptRepo{{RepoPath: repo, Worktree: path, BaseCommit: &base}}
		testkit.Must(t, c.damage(repo, path, &e))
		r := testkit.Get(k.Inspect(t.Context(), []Expected{e})).Must(t)
		var all []string
		for _, f := range r.Findings {
			all = append(all, f.Where+": "+f.What+": "+f.Do)
		}
		found := strings.Join(all, "\n")
		testkit.True(t, (c.want != "" || found == "") && len(all) <= 1 && strings.Contains(found, c.want), "%s: %s\nwant %q", name, found, c.want)
	}
}
