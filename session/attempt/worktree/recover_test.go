package worktree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
)

func link(t *testing.T, target, at string) {
	t.Helper()
	must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.RemoveAll(at)))
	if err := os.Symlink(target, at); err != nil {
		t.Skip("no symlinks here:", err)
	}
}

// Where a link is in the place of a folder, whatever was to be done is refused, and nothing is touched where
// it leads to.
func TestLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at            string
		made, private bool // the attempt has its worktree before; its journal is in its folder
	}{
		{".journal", false, false}, {attemptID, false, false}, {attemptID + "/web", false, false},
		{".journal", false, true}, {attemptID, false, true}, {attemptID + "/web", false, true},
		{".journal", true, false}, {attemptID, true, false}, {attemptID + "/web", true, false}, {attemptID, true, true},
		{attemptID + "/web", true, true},
	} {
		t.Run(strings.ReplaceAll(c.at, "/", "_"), func(t *testing.T) {
			repo := newRepo(t)
			home := filepath.Join(t.TempDir(), "home")
			k := newKeeper(t)
			write(t, home, "keep.txt", "mine", "web/keep.txt", "mine", attemptID+"/web/keep.txt", "mine")
			list := func() (all []string) {
				filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
					all = append(all, path)
					return err
				})
				return all
			}
			before := list()
			if !c.private {
				k.journal = t.TempDir()
			}
			if c.made {
				create(t, k, repo)
			}
			link(t, home, filepath.Join(k.dir, filepath.FromSlash(c.at)))
			if !c.made {
				testkit.FailsWith(t, notMade(t, k, tree(repo)), ErrNotOurs, "create")
			} else {
				path := filepath.Join(k.folder(attemptID), "web")
				testkit.FailsWith(t, notRemoved(t, k), ErrNotOurs, "remove")
				testkit.FailsWith(t, testkit.Get(k.Recover(t.Context(), nobodys)).Err(), ErrNotOurs, "recover")
				testkit.FailsWith(t, k.Check(attemptID, attemptID, []string{path}), ErrNotOurs, "check")
				if c.at != attemptID+"/web" { // that it is not a folder is known before
					testkit.Fails(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Err(), "", "status")
					_, _, err := k.Diff(t.Context(), path, "", "main", nil, 0)
					testkit.Fails(t, err, "", "diff")
				}
			}

			r := testkit.Get(k.Inspect(t.Context(), nil)).Must(t)
			testkit.True(t, !c.made || len(r.Findings) != 0, "inspected: %+v", r)
			testkit.Same(t, list(), before, "where the link leads to")
			testkit.Equal(t, strings.Count(gitIn(t, repo, "worktree", "list"), "\n") > 0, c.made, "there are worktrees")
		})
	}
}

// What is in a worktree's .git file is no evidence: the journal says whose it is.
func TestTheJournalSaysWhoseAWorktreeIs(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	other := newRepo(t)
	base := commit(t, other, "secret", "secret.txt", "x")
	gits(t, other, "worktree add -q --detach "+path+"-2 main")
	at := gitIn(t, other, "rev-parse", "--path-format=absolute", "--git-common-dir")
	write(t, at, "worktrees/web-2/gitdir", filepath.Join(path, ".git")+"\n")
	write(t, path, ".git", read(t, path+"-2", ".git"), "new.txt", "work")
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, base, "main")).Must(t).Changed, []string{"new.txt"})
	admin := adminOf(filepath.Join(repo, ".git"), path)
	write(t, admin, "commondir", at+"\n")
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), path, base, "main")).Err(), ErrNotOurs,
		"with another commondir")
	testkit.FailsWith(t, notRemoved(t, k), ErrNotOurs, "with another commondir")
	write(t, admin, "commondir", "../..\n")
	kept, _, err := k.Remove(t.Context(), attemptID, true, nil)
	testkit.Need(t, err == nil && len(kept) != 0, "%+v, %v", kept, err)
	holds(t, repo, kept[0].Commit, "new.txt", "work")
	testkit.Equal(t, refs(t, other, "refs/deepwork"), "", "the other repository")

	// Without a journal nothing is ours, whatever a .git file says.
	stray := filepath.Join(k.dir, journaledAttempt, "web")
	gits(t, repo, "worktree add -q --detach "+stray)
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), stray, "", "main")).Err(), ErrNoWorktree,
		"a worktree of no journal")
	testkit.FailsWith(t, k.Check(journaledAttempt, journaledAttempt, []string{stray}), ErrNotOurs,
		"a worktree of no journal")
}

// A git that was killed leaves what keeps git from working: a half-made worktree in the whole repository, and
// the lock file of the branch that it changed.
func TestRecoverRemovesWhatAKilledGitLeaves(t *testing.T) {
	t.Parallel()
	for _, half := range []bool{false, true} {
		k, repo, path := started(t)
		j := testkit.Get(k.load(attemptID)).Must(t)
		lock := filepath.Join(repo, ".git", "refs", "heads", j.Branch+".lock")
		if half {
			j.Phase = creating
			must(t, k.save(j))
			write(t, adminOf(filepath.Join(repo, ".git"), path), "locked", initializing, "commondir", "")
			if _, err := tryGit(repo, "rev-list", "--all"); err == nil {
				t.Skip("this git does without the file")
			}
		} else {
			testkit.Write(t, lock, "")
		}
		testkit.Equal(t, len(testkit.Get(k.Recover(t.Context(), nobodys)).Must(t)), 1)
		nothingLeft(t, k)
		sound(t, repo, 0)
		gits(t, repo, "rev-list --all")
		testkit.True(t, !isThere(lock), "the lock file was left")
	}
}

// Two projects may have their worktrees in one folder: what the board of one does
// not know is not nobody's. What nobody knows is undone, and its work kept.
func TestRecoverLeavesWhatAnotherOwnerMade(t *testing.T) {
	t.Parallel()
	k, repo := newKeeper(t), newRepo(t)
	k.journal = t.TempDir()
	path := create(t, k, repo)
	write(t, path, "new", "work")
	other := New(Options{Dir: k.dir, Journal: t.TempDir(), Logger: k.log})
	testkit.Same(t, testkit.Get(other.Recover(t.Context(), nobodys)).Must(t), nil, "it took another's")
	testkit.Same(t, testkit.Get(other.Inspect(t.Context(), nil)).Must(t).Findings, nil, "another's is a fault")
	testkit.Same(t, testkit.Get(k.Recover(t.Context(), func(a string) bool { return a == attemptID })).Must(t), nil,
		"a known attempt")

	reads(t, path, "new", "work")
	did := testkit.Get(k.Recover(t.Context(), nobodys)).Must(t)
	testkit.Need(t, len(did) == 2, "did %v", did)
	testkit.Contains(t, did[1], rescueRefs+attemptID)

	holds(t, repo, rescueRefs+attemptID, "new", "work")
	nothingLeft(t, k)
	sound(t, repo, 0)
}

func TestRecoverGoesOnAfterAFault(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	testkit.Get(k.Create(t.Context(), "good", branchName, []Tree{tree(repo)}, nil)).Must(t)
	write(t, k.journal, "broken.json", "{", "newer.json", `{"version": 99, "attempt": "newer"}`)
	link(t, filepath.Join(k.journal, "good.json"), filepath.Join(k.journal, "linked.json"))
	err := testkit.Get(k.Recover(t.Context(), nil)).Err()
	testkit.ContainsAll(t, err.Error(),
		[]string{filepath.Join(k.journal, "broken.json"), "99", "linked.json cannot be read: it is a symbolic link"})
	testkit.True(t, !isThere(filepath.Join(k.dir, "good")), "another attempt's fault hindered this one")
	testkit.Contains(t, read(t, k.journal, "newer.json"), "99", "a newer journal was overwritten")

	for _, attempt := range []string{"broken", "newer", "linked"} {
		testkit.Fails(t, testkit.Get(k.Create(t.Context(), attempt, branchName, []Tree{tree(repo)}, nil)).Err(), "",
			"%s was made", attempt)
		_, _, err := k.Remove(t.Context(), attempt, false, nil)
		testkit.Fails(t, err, "", "%s was removed", attempt)
	}
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	defer testkit.Get(k.lockAttempt(t.Context(), attemptID)).Must(t)()
	for name, waiter := range map[string]*Keeper{"this process": k, "another": New(Options{Dir: k.dir})} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, _, err := waiter.Remove(ctx, attemptID, false, nil)
		testkit.FailsWith(t, err, context.DeadlineExceeded, "%s", name)
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
		"nothing": {func(string, string, *Expected) error { return nil }, ""},
		"no base": {func(_, _ string, e *Expected) error {
			e.Repos[0].BaseCommit = new(strings.Repeat("f", 40))
			return nil
		}, "is not in the repository"},
		"no worktree": {func(_, path string, _ *Expected) error {
			return os.RemoveAll(path)
		}, "is gone; commits of it are on branch " + branchName},
		"no repository": {func(repo, _ string, _ *Expected) error { return os.RemoveAll(repo) }, "cannot be used"},
		"unknown to git": {func(repo, _ string, _ *Expected) error {
			return os.RemoveAll(filepath.Join(repo, ".git", "worktrees"))
		}, "does not know this worktree"},
		"no branch": {func(repo, _ string, _ *Expected) error {
			return testkit.Get(tryGit(repo, "update-ref", "-d", "refs/heads/"+branchName)).Err()
		}, "is on a branch or a commit that is not in the repository"},
		"not on the board": {func(_, _ string, e *Expected) error {
			e.ID = "another"
			e.Repos = nil
			return nil
		}, "which is not on the board"},
		"being deleted": {func(_, path string, e *Expected) error {
			e.Deleting = true
			return os.RemoveAll(path)
		}, ""},
	} {
		k, repo, path := started(t)
		e := Expected{Attempt: task.Attempt{
			ID:        attemptID,
			Branch:    branchName,
			Situation: task.Situation{State: task.Running},
			Workspace: filepath.Dir(path),
		}}
		e.Repos = []task.AttemptRepo{{RepoPath: repo, Worktree: path, BaseCommit: new(tip(repo, "HEAD"))}}
		must(t, c.damage(repo, path, &e))
		found := testkit.Get(k.Inspect(t.Context(), []Expected{e})).Must(t).Findings
		testkit.Need(t, len(found) == min(1, len(c.want)), "%s: %+v", name, found)
		for _, f := range found {
			testkit.Contains(t, f.Where+": "+f.What+": "+f.Do, c.want, "%s", name)
		}
	}
}

// twoTrees are two repositories, one with all that creation can do.
func twoTrees(t *testing.T) []Tree {
	first := newRepo(t)
	write(t, first, ".env", "SECRET=1")
	trees := []Tree{tree(first, ".env"), {RepoID: "r2", Name: "api", Repo: newRepo(t), TargetBranch: "main"}}
	if runtime.GOOS != "windows" {
		trees[0].Setup = []string{"sh", "-c", "echo set up >setup.log"}
	}
	return trees
}

// died is the value of the panic that ends a call at one of its points.
type died struct{}

// dieAt calls do, which ends at its n-th point, as if its process had died between two steps. It returns
// the number of points that it passed.
func dieAt(k *Keeper, n int, do func() error) (points int, err error) {
	defer func() {
		if r := recover(); r != nil && r != any(died{}) {
			panic(r)
		}
	}()
	k.atPoint = func(string) {
		points++
		if points == n {
			panic(died{})
		}
	}
	err = do()
	return points, err
}

// eachPoint has a call die at each of its points, and then checks what the next process does.
func eachPoint(
	t *testing.T, least int, prepare func(t *testing.T, k *Keeper, trees []Tree) (do func() error),
	check func(*testing.T, *Keeper, []Tree),
) {
	points := 0
	for n := 0; n == 0 || n <= points; n++ { // first it goes through, and the points are counted
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			k, trees := newKeeper(t), twoTrees(t)
			passed := testkit.Get(dieAt(k, n, prepare(t, k, trees))).Must(t)
			if n == 0 {
				points = passed
			} else {
				testkit.Equal(t, passed, n, "it died at")
				check(t, New(Options{Dir: k.dir, Logger: k.log}), trees)
			}
		})
	}
	testkit.True(t, points >= least, "there are only %d points", points)
}

// A creation that died is made again, and undone if nobody knows its attempt.
func TestCrashAtEachPointOfCreate(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T, k *Keeper, trees []Tree) func() error {
		return func() error { return notMade(t, k, trees...) }
	}
	eachPoint(t, 10, prepare, func(t *testing.T, k *Keeper, trees []Tree) {
		testkit.Same(t, testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t), nil,
			"a known attempt")
		done := makes(t, k, trees...)
		reads(t, done[0].Path, ".env", "SECRET=1")
		reads(t, done[1].Path, "lib/b.txt", "bee\n")
		if trees[0].Setup != nil {
			reads(t, done[0].Path, "setup.log", "set up\n")
		}
		clean(t, done[0].Path, done[1].Path)
		testkit.Equal(t, len(testkit.Get(k.Recover(t.Context(), nobodys)).Must(t)), 1, "an unknown attempt")
		nothingLeft(t, k)
		for _, tr := range trees {
			sound(t, tr.Repo, 0)
			testkit.Equal(t, refs(t, tr.Repo, "refs"), "refs/heads/main", "refs are left")
		}
	})
}

// A removal whose caller is gone removes nothing or everything.
func TestRemovalWithoutItsCaller(t *testing.T) {
	t.Parallel()
	for point, left := range map[string]bool{"begun": true, "renamed": false} {
		k, repo := newKeeper(t), newRepo(t)
		path := create(t, k, repo)
		write(t, path, "new", "work")
		ctx, cancel := context.WithCancel(t.Context())
		k.atPoint = func(at string) {
			if at == point {
				cancel()
			}
		}
		_, _, err := k.Remove(ctx, attemptID, false, func() bool {
			k.atPoint("begun")
			return false
		})
		testkit.Equal(t, err != nil, left, "%s: %v", point, err)
		testkit.Equal(t, isThere(path), left, "the worktree after the caller has gone when it was %s", point)
		if !left {
			nothingLeft(t, k)
		}
	}
}

// A removal that died loses no work, and is finished by the next call.
func TestCrashAtEachPointOfRemove(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T, k *Keeper, trees []Tree) func() error {
		for _, m := range makes(t, k, trees...) {
			write(t, m.Path, "untracked", "u")
			must(t, os.Remove(filepath.Join(m.Path, "lib", "b.txt")))
		}
		write(t, k.folder(attemptID), "notes", "beside")
		return func() error { return notRemoved(t, k) }
	}
	eachPoint(t, 8, prepare, func(t *testing.T, k *Keeper, trees []Tree) {
		half := isThere(k.removalPath(attemptID))
		did := testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t)
		testkit.Equal(t, len(did) > 0, half, "half-done")
		must(t, notRemoved(t, k))
		nothingLeft(t, k)
		for _, tr := range trees {
			holds(t, tr.Repo, rescueRefs+attemptID, "untracked", "u")
			testkit.Equal(t, len(files(t, tr.Repo, rescueRefs+attemptID)), 3, "kept")
			sound(t, tr.Repo, 0)
		}
		holds(t, trees[0].Repo, rescueRefs+attemptID+"-2", "notes", "beside")
	})
}

// Others that recover leave an attempt alone that is being made. A program that goes on and makes the folder
// of a worktree again does not keep it from being removed.
func TestWhatOthersDoMeanwhile(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	repo := newRepo(t)
	path := ""
	k.atPoint = func(point string) {
		switch point {
		case "copied web":
			testkit.Same(t, testkit.Get(New(Options{Dir: k.dir}).Recover(t.Context(), nobodys)).Must(t), nil)
		case "renamed":
			write(t, path, "cache/x", "later")
		}
	}
	path = create(t, k, repo)
	reads(t, path, "lib/b.txt", "bee\n")
	must(t, notRemoved(t, k))
	reads(t, path, "cache/x", "later")
	sound(t, repo, 0)
}

// A merge that died between two steps has moved the target or not, has lost no commit, and can be called again.
func TestCrashOfMerges(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			k, repo, path := worked(t)
			head := tip(path, "HEAD")
			commit(t, repo, "meanwhile", "lib/b.txt", "moved on\n")
			testkit.Equal(t, testkit.Get(dieAt(k, 1, func() error { return notMerged(t, k, path, way) })).Must(t), 1)
			k.atPoint = func(string) {}
			clean(t, repo, path)
			merged(t, k, path, way)
			reads(t, repo, "a.txt", "one\ntwo\nthree\n", "lib/b.txt", "moved on\n")
			if way != WayMerge {
				// the old commits are not lost
				gits(t, repo, "merge-base --is-ancestor "+head+" refs/deepwork/before/"+attemptID+"-"+head[:12])
			}
			clean(t, repo, path)
			sound(t, repo, 1)
		})
	}
}

// What git leaves when it is killed is refused, with the command that ends it.
func TestWhatAKilledGitLeavesIsNamed(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	commit(t, repo, "theirs", "a.txt", "theirs\n")
	tryGit(path, "rebase", "main")
	expectError(t, notMerged(t, k, path, WayMerge), ErrUnfinished, fmt.Sprintf("git -C %s rebase --abort", path))
	gits(t, path, "rebase --abort")
	testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t)
	expectError(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err(), ErrUnfinished,
		fmt.Sprintf("git -C %s merge --abort", path))
	gits(t, path, "merge --abort")
	gits(t, repo, "reset -q --hard HEAD~1")
	write(t, repo, "a.txt", "one\ntwo\nthr") // half a merge in the checkout
	testkit.ContainsAll(t, notMerged(t, k, path, WayMerge).Error(),
		[]string{`"a.txt"`, fmt.Sprintf("git -C %s merge", canonical(repo))})
}
