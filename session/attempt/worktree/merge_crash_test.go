package worktree

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// calls are what the process that is killed does.
var calls = map[string]func(k *Keeper, path string) error{
	"merge":     mergeBy(WayMerge),
	"squash":    mergeBy(WaySquash),
	"by rebase": mergeBy(WayRebase),
	"rebase": func(k *Keeper, path string) error {
		_, err := k.Rebase(context.Background(), Landing{Path: path, Target: "main"})
		return err
	},
	"update": func(k *Keeper, path string) error {
		_, err := k.Update(context.Background(), Landing{Path: path, Target: "main"})
		return err
	},
	"conflict": func(k *Keeper, path string) error {
		_, err := k.Update(context.Background(), Landing{Path: path, Target: "other"})
		return err
	},
	"squash away": mergeBy(WaySquash), // into a target that is checked out nowhere
	"push": func(k *Keeper, path string) error {
		_, err := k.Push(context.Background(), path, "origin", true)
		return err
	},
	"abort": func(k *Keeper, path string) error {
		_, err := k.Abort(context.Background(), path, nil)
		return err
	},
}

func mergeBy(way Way) func(*Keeper, string) error {
	return func(k *Keeper, path string) error {
		_, err := k.Merge(context.Background(), Landing{Path: path, Target: "main", Way: way})
		return err
	}
}

// crashSite makes a worktree with commits that change many files, a target that has moved and is checked
// out, and a branch that conflicts.
func crashSite(t *testing.T, op string, files int) (k *Keeper, repo, path string) {
	t.Helper()
	k, _ = newKeeper(t)
	repo = newRepo(t)
	gitIn(t, repo, "config", "user.name", "Una User")
	gitIn(t, repo, "config", "user.email", "una@example.com")
	for i := range files {
		write(t, repo, fmt.Sprintf("many/%d", i), strings.Repeat("before\n", 2000))
	}
	commit(t, repo, "many")
	gitIn(t, repo, "branch", "other")
	path = create(t, k, repo)
	for i := range files {
		write(t, path, fmt.Sprintf("many/%d", i), strings.Repeat("after it\n", 3000))
		write(t, path, fmt.Sprintf("more/%d", i), strings.Repeat("added\n", 2000))
	}
	write(t, path, "a.txt", "changed\n")
	gitIn(t, path, "rm", "-q", "-r", "lib")
	write(t, path, "lib", "a file now\n")
	commit(t, path, "the work")
	write(t, repo, "c.txt", "meanwhile\n")
	commit(t, repo, "meanwhile")
	gitIn(t, repo, "checkout", "-q", "other")
	write(t, repo, "a.txt", "conflict\n")
	for i := range files {
		write(t, repo, fmt.Sprintf("theirs/%d", i), strings.Repeat("theirs\n", 2000))
	}
	commit(t, repo, "conflict")
	gitIn(t, repo, "checkout", "-q", "main")
	write(t, path, "loose", "loose\n")
	switch op {
	case "squash away":
		gitIn(t, repo, "checkout", "-q", "-b", "away")
	case "push":
		remote := filepath.Join(t.TempDir(), "remote.git")
		gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
		gitIn(t, repo, "remote", "add", "origin", remote)
		must(t, calls[op](k, path))
		gitIn(t, path, "commit", "-q", "--amend", "-m", "again")
	}
	if op == "abort" {
		must(t, calls["conflict"](k, path))
		write(t, path, "a.txt", "half resolved\n")
	}
	return k, repo, path
}

// afterCrash recovers, and checks that the call was done or was not, and can be made.
func afterCrash(t *testing.T, k *Keeper, repo, path, op, mains, heads string) {
	t.Helper()
	if _, err := k.Recover(t.Context(), func(string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if j, err := k.load(attemptID); err != nil || j.changing() {
			t.Errorf("the journal still has a change, %v", err)
		}
		if read(t, path, "loose") != "loose\n" {
			t.Error("work is lost")
		}
		sound(t, repo, 1)
		if out := gitIn(t, repo, "status", "--porcelain"); out != "" {
			t.Errorf("the checkout has changes:\n%s", out)
		}
		out := gitIn(t, path, "status", "--porcelain")
		switch merging := mergeHead(adminOf(canonical(repo+"/.git"), path)) != ""; {
		case merging && !strings.Contains(out, "a.txt"), !merging && out != "?? loose":
			t.Errorf("the worktree, merging %t, has changes:\n%s", merging, out)
		case merging && op != "conflict" && op != "abort":
			t.Error("a merge is left")
		}
	}
	check()
	main, head := gitIn(t, repo, "rev-parse", "main"), gitIn(t, path, "rev-parse", "HEAD")
	if op == "squash" || op == "by rebase" || op == "squash away" {
		if (main == mains) != (head == heads) {
			t.Error("only one branch was moved")
		}
	}
	if err := calls[op](k, path); err != nil && !(errors.Is(err, ErrUnfinished) && op == "conflict" || errors.Is(err, ErrNoMerge) && op == "abort") {
		t.Errorf("again: %v", err)
	}
	check()
	if op == "push" && gitIn(t, repo, "ls-remote", "origin", branchName) != head+"\trefs/heads/"+branchName {
		t.Error("the remote does not have the branch")
	}
	if op != "conflict" && op != "abort" {
		if files := changedBy(t, k, path, "main"); !slices.Contains(files, "a.txt") || slices.Contains(files, "c.txt") {
			t.Errorf("the attempt is said to have changed %q", files)
		}
	}
	if refs := gitIn(t, repo, "for-each-ref", "--contains", heads); refs == "" {
		t.Error("the commits are lost")
	}
}

func TestCrashAtEachPointOfMerges(t *testing.T) {
	for op := range calls {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			for point, points := 0, 1; point <= points; point++ {
				k, repo, path := crashSite(t, op, 2)
				main, head := gitIn(t, repo, "rev-parse", "main"), gitIn(t, path, "rev-parse", "HEAD")
				n := crash{Dir: k.dir, Op: op, Point: point}.run(t)
				if point == 0 {
					if points = n; points < 4 && op != "push" {
						t.Fatalf("there are only %d points", points)
					}
				}
				afterCrash(t, k, repo, path, op, main, head)
				if t.Failed() {
					t.Fatalf("killed at point %d of %d", point, points)
				}
			}
		})
	}
}

// The server, and git with it, is killed in the middle of whatever it is doing.
func TestCrashOfMergesAtRandomMoments(t *testing.T) {
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for op := range calls {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			for range rounds {
				k, repo, path := crashSite(t, op, 100)
				main, head := gitIn(t, repo, "rev-parse", "main"), gitIn(t, path, "rev-parse", "HEAD")
				cmd := crash{Dir: k.dir, Op: op}.command(t)
				must(t, cmd.Start())
				after := 100*time.Millisecond + time.Duration(rand.IntN(500))*time.Millisecond
				timer := time.AfterFunc(after, func() { cmd.Process.Kill() })
				cmd.Wait()
				timer.Stop()
				afterCrash(t, k, repo, path, op, main, head)
				if t.Failed() {
					t.Fatalf("killed after %v", after)
				}
			}
		})
	}
}

// A git that was killed while it wrote a file leaves a part of it, and its lock. What a person has
// changed since stays.
func TestRecoverTakesBackHalfAMerge(t *testing.T) {
	k, repo, path := crashSite(t, "merge", 5)
	head, main := gitIn(t, path, "rev-parse", "HEAD"), gitIn(t, repo, "rev-parse", "main")
	j, err := k.load(attemptID)
	must(t, err)
	common := j.Trees[0].Common
	j.Trees[0].Change = &change{Files: []*fileMove{{Path: canonical(repo), Admin: common, From: main, To: head}},
		Refs: []refMove{{Ref: "refs/heads/main", Old: main, New: head}}, Keep: []refMove{{Ref: "refs/deepwork/before/old", New: head}}}
	must(t, k.save(j))
	write(t, repo, ".git/index.lock", "")
	write(t, repo, ".git/refs/heads/main.lock", "")
	write(t, repo, ".git/refs/deepwork/before/old.lock", "")
	write(t, repo, "many/0", "after it\nafter")                  // torn
	write(t, repo, "many/1", strings.Repeat("after it\n", 3000)) // written
	os.Remove(filepath.Join(repo, "many", "2"))                  // removed, to be written
	write(t, repo, "many/3", "mine\n")                           // a person's
	write(t, repo, "more/0", strings.Repeat("added\n", 2000))    // written
	write(t, repo, "more/1", "add")                              // torn
	write(t, repo, "more/2", "mine\n")                           // a person's
	os.RemoveAll(filepath.Join(repo, "lib"))                     // a folder, to be a file
	write(t, repo, "lib", "a fi")                                // torn
	did, err := k.Recover(t.Context(), func(string) bool { return true })
	if err != nil || len(did) != 1 {
		t.Fatal(did, err)
	}
	if out := gitIn(t, repo, "status", "--porcelain", "--untracked-files=all"); out != " M many/3\n?? more/2" {
		t.Errorf("the checkout has changes:\n%s", out)
	}
	if read(t, repo, "lib", "b.txt") != "bee\n" || gitIn(t, repo, "rev-parse", "main") != main {
		t.Error("it was not taken back")
	}
	sound(t, repo, 1)
	r, err := k.Inspect(t.Context(), nil)
	if err != nil || strings.Contains(fmt.Sprint(r), "cut short") {
		t.Error(r, err)
	}
}
