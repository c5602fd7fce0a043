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
	const text = "as in a git folder"
	commit(t, repo, "folder", "main/readme", text, "HEAD", text, "refs/x", text, "objects/x", text)
	gits(t, repo, "clone -q --bare . "+remote)
	for _, name := range []string{"main", "origin", "deepwork"} {
		gits(t, repo, "remote add "+name+" "+remote, "fetch -q "+name, "remote set-head "+name+" main")
	}
	for _, tag := range []string{"main", "heads/main", "other", branchName} {
		gits(t, repo, "tag "+tag+" HEAD~1")
	}
	gits(t, repo, "branch other refs/heads/main")
	for _, branch := range []string{"other", "main"} {
		gits(t, repo, "switch -q "+branch)
		testkit.Equal(t, testkit.Get(CurrentBranch(t.Context(), repo)).Must(t), branch, "the current branch")
	}
	testkit.Same(t, testkit.Get(Branches(t.Context(), repo)).Must(t), []string{"main", "other"}, "the branches")
	for _, way := range ways {
		k, path := attemptIn(t, repo)
		testkit.Equal(t, tip(path, "HEAD~1"), tip(repo, "refs/heads/main"), "%s: it begins at", way)
		commit(t, repo, "meanwhile", "lib/b.txt", string(way))
		st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
		testkit.True(t, st.Ahead == 1 && st.Behind == 1 && st.Elsewhere == "", "%s: %+v", way, st)
		testkit.Get(k.Push(t.Context(), path, "main", true)).Must(t)
		testkit.Equal(t, tip(remote, branchName), tip(path, "HEAD"), "%s: pushed", way)
		bring := k.Update
		if way == WayRebase {
			bring = k.Rebase
		}
		testkit.Same(t, testkit.Get(bring(t.Context(), landing(path, ""))).Must(t).Conflicts, nil, "%s", way)
		merged(t, k, path, way)
		reads(t, repo, "new.txt", "new\n", "lib/b.txt", string(way))
		clean(t, repo, path)
		testkit.Equal(t, tip(repo, "refs/tags/main"), tip(repo, "refs/heads/other~1"), "a tag was moved")
		testkit.Equal(t, remove(t, k).Ref+tip(repo, "refs/heads/"+branchName), "", "%s: what stays of a merged branch", way)
		gits(t, repo, "rm -q new.txt")
		commit(t, repo, "undo", "a.txt", "one\ntwo\n")
	}
}

// A branch whose name is the beginning of another one is named, here and at a remote.
func TestField07_BranchInTheWay(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gits(t, remoteOf(t, repo), "branch deepwork main")
	k, path := attemptIn(t, repo)
	expectError(t, testkit.Get(k.Push(t.Context(), path, "origin", false)).Err(), ErrRejected, "attempts.branch_prefix")
	remove(t, k)
	gits(t, repo, "branch -q -D "+branchName, "branch deepwork")
	testkit.Fails(t, notMade(t, k, tree(repo)), "git branch -m deepwork NEW-NAME")
	nothingLeft(t, k)
}

// The folder of an attempt is short, has the name of its branch, and belongs to it alone; other attempts with a name that
// begins alike have other items.
func TestNameFor(t *testing.T) {
	k, repo := newKeeper(t), newRepo(t)
	testkit.Equal(t, NameFor(k.dir, "deepwork/fix-the-login-1a2b"), "fix-the-login-1a2b")
	testkit.Equal(t, NameFor(k.dir, "a.b-task-1a2b"), "b-task-1a2b")
	create := func(name, id, repo string) (string, error) {
		one := tree(repo)
		one.Attempt = id
		made, err := k.Create(t.Context(), name, "deepwork/"+name, []Tree{one}, nil)
		return append(made, Made{})[0].Path, err
	}
	path := testkit.Get(create("fix-1a2b", "one", repo)).Must(t)
	testkit.Equal(t, NameFor(k.dir, "deepwork/fix-1a2b"), "fix-1a2b-2")
	testkit.Equal(t, NameOf(path), "fix-1a2b")
	testkit.Equal(t, strings.Join([]string{Owner(k.dir, "fix-1a2b"), Owner(k.dir, "../fix-1a2b")}, ","), "one,")
	testkit.Get(create("fix-1a2b-port", "one", repo)).Must(t)
	testkit.Get(create("fix-1a2b-3c4d", "another", repo)).Must(t)
	testkit.Same(t, testkit.Get(k.Items("fix-1a2b", "one")).Must(t), []string{"fix-1a2b-port"})
	testkit.Works(t, k.Check("fix-1a2b", "one", []string{path}))
	testkit.FailsWith(t, k.Check("fix-1a2b", "another", []string{path}), ErrNotOurs)
	testkit.Fails(t, testkit.Get(create("fix-1a2b", "another", newRepo(t))).Err(), "belongs to attempt one")
	write(t, path, "new.txt", "n\n")
	kept, _, err := k.Remove(t.Context(), "fix-1a2b", false, nil)
	must(t, err)
	testkit.Equal(t, kept[0].Ref, rescueRefs+"one")
	testkit.Equal(t, testkit.Get(k.Rescues(t.Context(), "one", []string{repo})).Must(t)[0].Path, path)
}
