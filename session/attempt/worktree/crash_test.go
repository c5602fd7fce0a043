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
	first, second := newRepo(t), newRepo(t)
	write(t, first, ".env", "SECRET=1")
	trees := []Tree{tree(first), {RepoID: "r2", Name: "api", Repo: second, TargetBranch: "main"}}
	trees[0].Copy = []string{".env"}
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
	return points, do()
}

// eachPoint has a call die at each of its points, and then checks what the next process does.
func eachPoint(t *testing.T, least int, prepare func(t *testing.T, k *Keeper, trees []Tree) (do func() error), check func(*testing.T, *Keeper, []Tree)) {
	for n, points := 1, least; n <= points; n++ {
		k, _ := newKeeper(t)
		trees := twoTrees(t)
		do := prepare(t, k, trees)
		if n == 1 {
			k.at = func(string) { points++ }
			points = 0
			must(t, do())
			testkit.Need(t, points >= least, "there are only %d points", points)
			k, _ = newKeeper(t)
			trees = twoTrees(t)
			do = prepare(t, k, trees)
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			testkit.Get(dieAt(k, n, do)).Must(t)
			check(t, New(Options{Dir: k.dir, Logger: k.log}), trees)
		})
	}
}

// A creation that died is made again, and undone if nobody knows its attempt.
func TestCrashAtEachPointOfCreate(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T, k *Keeper, trees []Tree) func() error {
		return func() error {
			_, err := k.Create(t.Context(), attemptID, branchName, trees, nil)
			return err
		}
	}
	eachPoint(t, 10, prepare, func(t *testing.T, k *Keeper, trees []Tree) {
		did := testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t)
		testkit.True(t, len(did) == 0, "a known attempt: %v", did)
		done := testkit.Get(k.Create(t.Context(), attemptID, branchName, trees, nil)).Must(t)
		testkit.True(t, read(t, done[0].Path, ".env") == "SECRET=1" && read(t, done[1].Path, "lib/b.txt") == "bee\n" && (runtime.GOOS == "windows" || read(t, done[0].Path, "setup.log") == "set up\n"), "a worktree is not complete")
		clean(t, done[0].Path, done[1].Path)
		testkit.Equal(t, len(testkit.Get(k.Recover(t.Context(), func(string) bool { return false })).Must(t)), 1, "an unknown attempt")
		nothingLeft(t, k)
		for _, tr := range trees {
			sound(t, tr.Repo, 0)
			testkit.Equal(t, gitIn(t, tr.Repo, "for-each-ref", "--format=%(refname)"), "refs/heads/main", "refs are left")
		}
	})
}

// A removal that died loses no work, and is finished by the next call.
func TestCrashAtEachPointOfRemove(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T, k *Keeper, trees []Tree) func() error {
		done := testkit.Get(k.Create(t.Context(), attemptID, branchName, trees, nil)).Must(t)
		for _, m := range done {
			write(t, m.Path, "untracked", "u")
			must(t, os.Remove(filepath.Join(m.Path, "lib", "b.txt")))
		}
		write(t, k.folder(attemptID), "notes", "beside")
		return func() error {
			_, _, err := k.Remove(t.Context(), attemptID, false, nil)
			return err
		}
	}
	eachPoint(t, 8, prepare, func(t *testing.T, k *Keeper, trees []Tree) {
		half := isThere(k.gone(attemptID))
		testkit.Equal(t, (len(testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t)) > 0), half, "half-done")
		_, _, err := k.Remove(t.Context(), attemptID, false, nil)
		must(t, err)
		nothingLeft(t, k)
		for _, tr := range trees {
			ref := rescueRefs + attemptID
			testkit.Equal(t, show(t, tr.Repo, ref, "untracked"), "u", "kept")
			testkit.Equal(t, len(files(t, tr.Repo, ref)), 3, "kept")
			sound(t, tr.Repo, 0)
		}
		testkit.Equal(t, show(t, trees[0].Repo, rescueRefs+attemptID+"-2", "notes"), "beside", "what lay beside is lost")
	})
}

// A program that goes on and makes the folder of a worktree again does not keep it from being removed.
func TestAFolderThatIsMadeAgainMeanwhile(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, path := attemptIn(t, repo)
	k.at = func(point string) {
		if point == "renamed" {
			write(t, path, "cache/x", "later")
		}
	}
	_, _, err := k.Remove(t.Context(), attemptID, false, nil)
	testkit.Must(t, err)
	testkit.Equal(t, read(t, path, "cache/x"), "later", "what is not the attempt's")
	sound(t, repo, 0)
}

// A merge that died between two steps has moved the target or not, has lost no commit, and can be called
// again.
func TestCrashOfMerges(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(string(way), func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			k, path := attemptIn(t, repo)
			head := gitIn(t, path, "rev-parse", "HEAD")
			write(t, repo, "lib/b.txt", "moved on\n")
			commit(t, repo, "meanwhile")
			testkit.Equal(t, testkit.Get(dieAt(k, 1, func() error { _, err := k.Merge(t.Context(), landing(path, way)); return err })).Must(t), 1)
			k.at = func(string) {}
			clean(t, repo, path)
			testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t)
			testkit.Equal(t, read(t, repo, "a.txt"), "one\ntwo\nthree\n", "it is not merged")
			testkit.Equal(t, read(t, repo, "lib/b.txt"), "moved on\n", "it is not merged")
			if _, err := tryGit(repo, "merge-base", "--is-ancestor", head, "refs/deepwork/before/"+attemptID+"-"+head[:12]); way != WayMerge && err != nil {
				t.Errorf("the old commits are lost: %v", err)
			}
			clean(t, repo, path)
			sound(t, repo, 1)
		})
	}
}

// What git leaves when it is killed is refused, with the command that ends it.
func TestWhatAKilledGitLeavesIsNamed(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T) (*Keeper, string, string) {
		repo := newRepo(t)
		k, path := attemptIn(t, repo)
		write(t, repo, "a.txt", "theirs\n")
		commit(t, repo, "theirs")
		return k, repo, path
	}
	t.Run("rebase", func(t *testing.T) {
		t.Parallel()
		k, _, path := prepare(t)
		tryGit(path, "rebase", "main")
		expectError(t, testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Err(), ErrUnfinished, fmt.Sprintf("git -C %q rebase --abort", path))
		gitIn(t, path, "rebase", "--abort")
		testkit.Works(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Err())
		expectError(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err(), ErrUnfinished, fmt.Sprintf("git -C %q merge --abort", path))
	})
	t.Run("half a merge in the checkout", func(t *testing.T) {
		t.Parallel()
		repo := newRepo(t)
		k, path := attemptIn(t, repo)
		write(t, repo, "a.txt", "one\ntwo\nthr")
		_, err := k.Merge(t.Context(), landing(path, WayMerge))
		expectError(t, err, nil, `"a.txt"`)
		expectError(t, err, nil, fmt.Sprintf("git -C %q merge", canonical(repo)))
	})
}
