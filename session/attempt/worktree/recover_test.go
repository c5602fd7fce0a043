package worktree

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/session/git"
)

func TestRecoverUndoesWhatNobodyKnowsAndKeepsItsWork(t *testing.T) {
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

func TestRecoverLeavesTheOthersAtWorkAlone(t *testing.T) {
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
		if _, err := k.Remove(t.Context(), attempt, nil); err == nil {
			t.Errorf("%s was removed", attempt)
		}
	}
}

func TestLocksOfAKilledGitAreHealed(t *testing.T) {
	repo := newRepo(t)
	k, _ := newKeeper(t)
	k.stale = lone
	path := create(t, k, repo)
	write(t, path, "new", "work")
	// As if it had been killed while it deleted the branch of a first go.
	cutShort(t, k, removing, dropping)
	common := filepath.Join(repo, ".git")
	write(t, common, "refs/heads/"+branchName+".lock", "")
	write(t, common, "refs/deepwork/rescue/"+attemptID+".lock", "")
	write(t, common, "packed-refs.lock", "")
	if r := remove(t, k); show(t, repo, r.Commit, "new") != "work" {
		t.Error("the work is lost")
	}
	sound(t, repo, 0)

	// And while worktree add had only begun.
	path = create(t, k, repo)
	cutShort(t, k, creating, adding)
	os.RemoveAll(path)
	admin := adminOf(canonical(common), path)
	os.Remove(filepath.Join(admin, "gitdir"))
	write(t, admin, "locked", initializing)
	if got := create(t, k, repo); got != path || read(t, path, "a.txt") != "one\ntwo\n" {
		t.Error("it was not finished")
	}
	sound(t, repo, 1)
	remove(t, k)
}

// A worktree add that is killed may leave any part of what it makes.
func TestHalfMadeWorktreesAreMadeAnew(t *testing.T) {
	for _, c := range []struct {
		lost   string
		folder bool // its folder is there, as far as git makes it before that
	}{{"commondir", false}, {"HEAD", false}, {"gitdir", false}, {"empty gitdir", false}, {"all", false},
		{"commondir", true}, {"HEAD", true}, {"gitdir", true}, {"empty gitdir", true}, {"empty HEAD", true}, {"empty commondir", true}, {"all", true}} {
		lost := c.lost
		t.Run(fmt.Sprintf("%s, folder %t", lost, c.folder), func(t *testing.T) {
			repo := newRepo(t)
			k, _ := newKeeper(t)
			k.stale = lone
			path := create(t, k, repo)
			cutShort(t, k, creating, adding)
			pointer := read(t, path, ".git")
			os.RemoveAll(path)
			if c.folder {
				write(t, path, ".git", pointer)
			}
			admin := adminOf(canonical(filepath.Join(repo, ".git")), path)
			list, _ := os.ReadDir(admin)
			for _, f := range list {
				if lost == "all" || f.Name() == lost {
					os.RemoveAll(filepath.Join(admin, f.Name()))
				}
			}
			if name, empty := strings.CutPrefix(lost, "empty "); empty {
				write(t, admin, name, "")
			}
			if lost != "all" {
				write(t, admin, "locked", initializing)
			}
			if create(t, k, repo) != path || read(t, path, "a.txt") != "one\ntwo\n" {
				t.Error("it was not made again")
			}
			sound(t, repo, 1)
			remove(t, k)
			sound(t, repo, 0)
		})
	}
}

// What a killed server has left half-made keeps git from working with the repository at
// all. Other attempts do not fail over that, though its own was not recovered yet.
func TestWhatAKilledServerLeftDoesNotHinderOthers(t *testing.T) {
	for _, left := range []string{"commondir", "HEAD", "gitdir", "packed-refs.lock"} {
		t.Run(left, func(t *testing.T) {
			repo := newRepo(t)
			k, _ := newKeeper(t)
			k.stale = lone
			path := create(t, k, repo)
			cutShort(t, k, creating, adding)
			common := canonical(filepath.Join(repo, ".git"))
			at := common
			if left != packedLock {
				at = adminOf(common, path)
				write(t, at, "locked", initializing)
			}
			write(t, at, left, "")
			other, err := k.Create(t.Context(), "other", branchName+"-other", []Tree{tree(repo)}, nil)
			must(t, err)
			if _, err := k.Remove(t.Context(), "other", nil); err != nil || isThere(other[0].Path) {
				t.Error(err)
			}
			if create(t, k, repo) != path || read(t, path, "a.txt") != "one\ntwo\n" {
				t.Error("its own was not made again")
			}
			sound(t, repo, 1)
			remove(t, k)
			sound(t, repo, 0)
		})
	}
}

// What is somebody else's, or of a server that lives, is not taken for a dead one's.
func TestWhatIsNotOfAKilledServerStays(t *testing.T) {
	repo := newRepo(t)
	k, _ := newKeeper(t)
	k.stale = lone
	path := create(t, k, repo)
	common := canonical(filepath.Join(repo, ".git"))
	elsewhere := filepath.Join(t.TempDir(), "theirs")
	gitIn(t, repo, "worktree", "add", "-q", "--detach", elsewhere)
	theirs := adminOf(common, canonical(elsewhere))
	stays := func(what, file string) {
		t.Helper()
		write(t, filepath.Dir(file), filepath.Base(file), "")
		if err := k.clearObstacles(t.Context(), common, nil); err != nil || !isThere(file) {
			t.Errorf("%s: %v", what, err)
		}
	}
	stays("a lock, and nothing is half-done", filepath.Join(common, packedLock))
	cutShort(t, k, creating, adding)
	if err := k.clearObstacles(t.Context(), common, nil); err != nil || isThere(filepath.Join(common, packedLock)) {
		t.Errorf("the lock of a dead one stays: %v", err)
	}
	stays("another's worktree", filepath.Join(theirs, "commondir"))
	unlock, err := k.lockAttempt(t.Context(), attemptID)
	must(t, err)
	defer unlock()
	stays("a worktree at which somebody is at work", filepath.Join(adminOf(common, path), "commondir"))
}

func TestLocksOfAnotherTimeAreNotOurs(t *testing.T) {
	dir := t.TempDir()
	k, _ := newKeeper(t)
	write(t, dir, packedLock, "")
	for _, begun := range []time.Time{time.Now().Add(time.Hour), time.Now().Add(-stepLasts - time.Minute)} {
		if err := k.clearRefLocks(t.Context(), dir, []time.Time{begun}, "refs/heads/x"); err != nil {
			t.Error(err)
		}
		if !isThere(filepath.Join(dir, packedLock)) {
			t.Error("it was removed")
		}
	}
}

// A git that was killed while it deleted a branch that is packed leaves a lock and a
// draft, and no git deletes another one while they are there.
func TestAKilledDeletionOfABranch(t *testing.T) {
	for _, others := range []bool{false, true} {
		repo := newRepo(t)
		k, _ := newKeeper(t)
		k.stale = lone
		create(t, k, repo)
		gitIn(t, repo, "branch", "topic")
		gitIn(t, repo, "pack-refs", "--all")
		cutShort(t, k, removing, dropping)
		deletion := exec.Command("git", "update-ref", "--stdin")
		deletion.Dir, deletion.Env = repo, git.Environ()
		in, err := deletion.StdinPipe()
		must(t, err)
		out, err := deletion.StdoutPipe()
		must(t, err)
		must(t, deletion.Start())
		if _, err := io.WriteString(in, "start\ndelete refs/heads/"+branchName+"\nprepare\n"); err != nil {
			t.Fatal(err)
		}
		for said := bufio.NewScanner(out); said.Scan() && said.Text() != "prepare: ok"; {
		}
		must(t, deletion.Process.Kill())
		deletion.Wait()
		if common := filepath.Join(repo, ".git"); !isThere(filepath.Join(common, packedNew)) || !isThere(filepath.Join(common, packedLock)) {
			t.Skip("this git leaves other traces")
		}
		if others {
			if _, err := k.Create(t.Context(), "other", branchName+"-other", []Tree{tree(repo)}, nil); err != nil {
				t.Error(err)
			}
			if _, err := k.Remove(t.Context(), "other", nil); err != nil {
				t.Error(err)
			}
		}
		if _, err := k.Recover(t.Context(), func(string) bool { return false }); err != nil {
			t.Error(err)
		}
		gitIn(t, repo, "branch", "-D", "topic")
		nothingLeft(t, k)
		sound(t, repo, 0)
	}
}

// Commits that only a worktree's own log leads to are lost with its administrative
// folder: while they are not kept, that stays, whatever has become of it.
func TestWhatIsNotKeptYetIsNotCleared(t *testing.T) {
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	cutShort(t, k, removing, ready)
	common := canonical(filepath.Join(repo, ".git"))
	admin := adminOf(common, path)
	write(t, admin, "commondir", "")
	if err := k.clearObstacles(t.Context(), common, nil); err != nil || !isThere(filepath.Join(admin, "logs")) {
		t.Errorf("it was cleared away: %v", err)
	}
}

func TestRemoveOfAnUnfinishedCreation(t *testing.T) {
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "early", "somebody was here")
	os.Remove(filepath.Join(path, "lib/b.txt")) // as if the checkout had not come so far
	cutShort(t, k, creating, adding)
	r := remove(t, k)
	if show(t, repo, r.Commit, "early") != "somebody was here" {
		t.Error("a file is lost")
	}
	if !slices.Contains(files(t, repo, r.Commit), "lib/b.txt") {
		t.Error("what was never checked out counts as deleted")
	}
	sound(t, repo, 0)
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	k, _ := newKeeper(t)
	unlock, err := k.lockAttempt(t.Context(), attemptID)
	must(t, err)
	defer unlock()
	other := New(Options{Dir: k.dir})
	for name, waiter := range map[string]*Keeper{"this process": k, "another": other} {
		ctx, cancel := contextThatEnds(t, 50*time.Millisecond)
		if _, err := waiter.Remove(ctx, attemptID, nil); !errors.Is(err, ctx.Err()) || err == nil {
			t.Errorf("%s: got %v", name, err)
		}
		cancel()
	}
}
