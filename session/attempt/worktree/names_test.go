package worktree

import (
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// Tags, remotes and folders that are named like branches do not change which branches are meant.
func TestField07_NamesLikeBranches(t *testing.T) {
	t.Parallel()
	repo, remote := newRepo(t), filepath.Join(t.TempDir(), "remote.git")
	for _, name := range []string{"main/readme", "HEAD", "refs/x", "objects/x"} {
		write(t, repo, name, "as in a git folder")
	}
	commit(t, repo, "folder")
	gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
	for _, name := range []string{"main", "origin", "deepwork"} {
		gitIn(t, repo, "remote", "add", name, remote)
		gitIn(t, repo, "fetch", "-q", name)
		gitIn(t, repo, "remote", "set-head", name, "main")
	}
	for _, tag := range []string{"main", "heads/main", "other", branchName} {
		gitIn(t, repo, "tag", tag, "HEAD~1")
	}
	gitIn(t, repo, "branch", "other", "refs/heads/main")
	for _, branch := range []string{"other", "main"} {
		gitIn(t, repo, "switch", "-q", branch)
		testkit.Equal(t, testkit.Get(CurrentBranch(t.Context(), repo)).Must(t), branch, "the current branch")
	}
	testkit.Equal(t, strings.Join(testkit.Get(Branches(t.Context(), repo)).Must(t), " "), "main other", "the branches")
	for _, way := range ways {
		k, path := attemptIn(t, repo)
		testkit.Equal(t, tip(path, "HEAD~1"), tip(repo, "refs/heads/main"), "%s: it begins at", way)
		write(t, repo, "lib/b.txt", string(way))
		commit(t, repo, "meanwhile")
		st, err := k.Status(t.Context(), path, "", "main")
		testkit.True(t, err == nil && st.Ahead == 1 && st.Behind == 1 && st.Elsewhere == "", "%s: %+v, %v", way, st, err)
		if _, err := k.Push(t.Context(), path, "main", true); err != nil || tip(remote, branchName) != tip(path, "HEAD") {
			t.Errorf("%s: pushed %v", way, err)
		}
		if way == WayRebase {
			testkit.Works(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err())
		} else if r, err := k.Update(t.Context(), landing(path, "")); err != nil || len(r.Conflicts) > 0 {
			t.Errorf("%s: %+v, %v", way, r, err)
		}
		if _, err := k.Merge(t.Context(), landing(path, way)); err != nil || read(t, repo, "new.txt") != "new\n" || read(t, repo, "lib/b.txt") != string(way) {
			t.Errorf("%s: %v", way, err)
		}
		clean(t, repo, path)
		testkit.Equal(t, tip(repo, "refs/tags/main"), tip(repo, "refs/heads/other~1"), "a tag was moved")
		testkit.Equal(t, remove(t, k).Ref, "", "kept")
		if at, err := tryGit(repo, "rev-parse", "--verify", "--quiet", "refs/heads/"+branchName); err == nil {
			t.Errorf("%s: the merged branch stays, at %s", way, at)
		}
		gitIn(t, repo, "rm", "-q", "new.txt")
		write(t, repo, "a.txt", "one\ntwo\n")
		commit(t, repo, "undo")
	}
}

// A branch whose name is the beginning of another one is named, here and at a remote.
func TestField07_BranchInTheWay(t *testing.T) {
	t.Parallel()
	repo, remote := newRepo(t), filepath.Join(t.TempDir(), "remote.git")
	gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
	gitIn(t, remote, "branch", "deepwork", "main")
	gitIn(t, repo, "remote", "add", "origin", remote)
	k, path := attemptIn(t, repo)
	expectError(t, testkit.Get(k.Push(t.Context(), path, "origin", false)).Err(), ErrRejected, "attempts.branch_prefix")
	remove(t, k)
	gitIn(t, repo, "branch", "-q", "-D", branchName)
	gitIn(t, repo, "branch", "deepwork")
	expectError(t, testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)).Err(), nil, "git branch -m deepwork NEW-NAME")
	nothingLeft(t, k)
}

// The folder of an attempt is short, has the name of its branch, and belongs to it alone; other attempts with a name that
// begins alike have other items.
func TestNameFor(t *testing.T) {
	k, _ := newKeeper(t)
	for branch, want := range map[string]string{
		"deepwork/fix-the-login-1a2b": "fix-the-login-1a2b", "a.b-task-1a2b": "b-task-1a2b",
	} {
		testkit.Equal(t, NameFor(k.dir, branch), want)
	}
	repo := newRepo(t)
	made := func(name, id string) string {
		one := tree(repo)
		one.Attempt = id
		return testkit.Get(k.Create(t.Context(), name, "deepwork/"+name, []Tree{one}, nil)).Must(t)[0].Path
	}
	path := made("fix-1a2b", "one")
	testkit.Equal(t, NameFor(k.dir, "deepwork/fix-1a2b"), "fix-1a2b-2")
	testkit.Equal(t, NameOf(path), "fix-1a2b")
	testkit.Equal(t, Owner(k.dir, "fix-1a2b"), "one")
	testkit.Equal(t, Owner(k.dir, "../fix-1a2b"), "")
	made("fix-1a2b-port", "one")
	made("fix-1a2b-3c4d", "another")
	testkit.Same(t, testkit.Get(k.Items("fix-1a2b", "one")).Must(t), []string{"fix-1a2b-port"})
	testkit.Works(t, k.Check("fix-1a2b", "one", []string{path}))
	testkit.FailsWith(t, k.Check("fix-1a2b", "another", []string{path}), ErrNotOurs)
	other := tree(newRepo(t))
	other.Attempt = "another"
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), "fix-1a2b", "deepwork/fix-1a2b", []Tree{other}, nil)).Err(), "belongs to attempt one")
	write(t, path, "new.txt", "n\n")
	kept, _, err := k.Remove(t.Context(), "fix-1a2b", false, nil)
	must(t, err)
	testkit.Equal(t, kept[0].Ref, rescueRefs+"one")
	found := testkit.Get(k.Rescues(t.Context(), "one", []string{repo})).Must(t)
	testkit.Equal(t, found[0].Path, path)
}
