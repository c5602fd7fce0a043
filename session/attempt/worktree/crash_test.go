package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"deepwork/actor/testkit"
)

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
	k.at = func(string) {
		if points++; points == n {
			panic(died{})
		}
	}
	err = do()
	return points, err
}

// eachPoint has a call die at each of its points, and then checks what the next process does.
func eachPoint(t *testing.T, least int, prepare func(t *testing.T, k *Keeper, trees []Tree) (do func() error), check func(*testing.T, *Keeper, []Tree)) {
	points := 0
	for n := 0; n == 0 || n <= points; n++ { // first it goes through, and the points are counted
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			k, trees := newKeeper(t), twoTrees(t)
			passed := testkit.Get(dieAt(k, n, prepare(t, k, trees))).Must(t)
			if n == 0 {
				points = passed
			} else {
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
		testkit.Same(t, testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t), nil, "a known attempt")
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
		half := isThere(k.gone(attemptID))
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

// A program that goes on and makes the folder of a worktree again does not keep it from being removed.
func TestAFolderThatIsMadeAgainMeanwhile(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	k.at = func(point string) {
		if point == "renamed" {
			write(t, path, "cache/x", "later")
		}
	}
	must(t, notRemoved(t, k))
	reads(t, path, "cache/x", "later")
	sound(t, repo, 0)
}

// A merge that died between two steps has moved the target or not, has lost no commit, and can be called
// again.
func TestCrashOfMerges(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			k, repo, path := worked(t)
			head := tip(path, "HEAD")
			commit(t, repo, "meanwhile", "lib/b.txt", "moved on\n")
			testkit.Equal(t, testkit.Get(dieAt(k, 1, func() error { return notMerged(t, k, path, way) })).Must(t), 1)
			k.at = func(string) {}
			clean(t, repo, path)
			merged(t, k, path, way)
			reads(t, repo, "a.txt", "one\ntwo\nthree\n", "lib/b.txt", "moved on\n")
			if way != WayMerge {
				gits(t, repo, "merge-base --is-ancestor "+head+" refs/deepwork/before/"+attemptID+"-"+head[:12]) // the old commits are not lost
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
	expectError(t, notMerged(t, k, path, WayMerge), ErrUnfinished, fmt.Sprintf("git -C %q rebase --abort", path))
	gits(t, path, "rebase --abort")
	testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t)
	expectError(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err(), ErrUnfinished, fmt.Sprintf("git -C %q merge --abort", path))
	gits(t, path, "merge --abort")
	write(t, repo, "a.txt", "one\ntwo\nthr") // half a merge in the checkout
	testkit.ContainsAll(t, notMerged(t, k, path, WayMerge).Error(), []string{`"a.txt"`, fmt.Sprintf("git -C %q merge", canonical(repo))})
}
