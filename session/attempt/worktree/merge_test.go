package worktree

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// asUser gives the user of the test a config of their own.
func asUser(t *testing.T, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "gitconfig")
	testkit.Write(t, file, "[user]\n\tname = Una User\n\temail = una@example.com\n"+text)
	testkit.Age(file)
	t.Setenv("GIT_CONFIG_GLOBAL", file)
}

// attemptIn makes a worktree of a repository, with a commit.
func attemptIn(t *testing.T, repo string) (*Keeper, string) {
	t.Helper()
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new.txt", "new\n")
	write(t, path, "a.txt", "one\ntwo\nthree\n")
	commit(t, path, "the work")
	return k, path
}

func clean(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		testkit.Equal(t, gitIn(t, dir, "status", "--porcelain"), "", "%s has changes", dir)
	}
}

func landing(path string, way Way) Landing {
	return Landing{Path: path, Target: "main", Way: way, Message: "Do it"}
}

var ways = []Way{WayMerge, WaySquash, WayRebase}

func TestMergeEachWay(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		for _, way := range ways {
			name := string(way) + map[bool]string{true: ", checked out nowhere", false: ""}[away]
			t.Run(name, func(t *testing.T) {
				repo := newRepo(t)
				k, path := attemptIn(t, repo)
				write(t, repo, "lib/b.txt", "moved on\n")
				before := commit(t, repo, "meanwhile")
				if away {
					gitIn(t, repo, "checkout", "-q", "-b", "elsewhere")
				}
				got := testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t)
				testkit.Equal(t, got.Before, before, "landed")
				testkit.Equal(t, got.Commit, gitIn(t, repo, "rev-parse", "main"), "landed")
				for name, want := range map[string]string{"new.txt": "new\n", "a.txt": "one\ntwo\nthree\n", "lib/b.txt": "moved on\n"} {
					testkit.Equal(t, show(t, repo, "main", name), want, "%s", name)
				}
				parents := strings.Fields(gitIn(t, repo, "show", "-s", "--format=%P", "main"))
				by := gitIn(t, repo, "show", "-s", "--format=%an %ae %cn %s", "main")
				want := "Una User una@example.com Una User Do it"
				if way == WayRebase {
					want = "Tester tester@example.com Una User the work"
				}
				testkit.True(t, by == want && len(parents) == 1+map[Way]int{WayMerge: 1}[way] && parents[0] == before, "the commit is by %s, parents %v", by, parents)
				clean(t, repo, path)
				testkit.Equal(t, gitIn(t, path, "symbolic-ref", "--short", "HEAD"), branchName, "the worktree is on")
				testkit.Equal(t, gitIn(t, repo, "for-each-ref", "refs/deepwork/before") != "", way != WayMerge, "kept")
				sound(t, repo, 1)
				again := testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t)
				testkit.True(t, again.Before == again.Commit, "again: %+v", again)
				// More work in the same lines, and a second merge.
				write(t, path, "a.txt", "one\ntwo\nfour\n")
				commit(t, path, "more")
				if _, err := k.Merge(t.Context(), landing(path, way)); err != nil || show(t, repo, "main", "a.txt") != "one\ntwo\nfour\n" {
					t.Errorf("a second merge: %v", err)
				}
				clean(t, repo, path)
			})
		}
	}
}

// Git would remove ignored files where a merge adds a folder, and ignored folders where it adds a file.
// Tracked ones are replaced.
func TestMergeKeepsIgnoredFilesAndFolders(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "was-dir/x.txt", "x\n")
	write(t, repo, "was-file", "x\n")
	commit(t, repo, "both")
	k, path := attemptIn(t, repo)
	gitIn(t, path, "rm", "-rq", "was-dir", "was-file")
	write(t, path, "was-dir", "x\n")
	write(t, path, "was-file/x.txt", "x\n")
	write(t, path, "data/x.txt", "x\n")
	write(t, path, "out", "x\n")
	commit(t, path, "others")
	write(t, repo, ".git/info/exclude", "data\nout\n")
	write(t, repo, "data", "mine\n")
	write(t, repo, "out/deep/x.bin", "mine\n")
	for _, way := range ways {
		_, err := k.Merge(t.Context(), landing(path, way))
		if refused, is := errors.AsType[*CheckedOutError](err); !is || !slices.Equal(slices.Sorted(slices.Values(refused.Files)), []string{"data", "out"}) {
			t.Fatalf("%s: %+v, %v", way, refused, err)
		}
	}
	for _, name := range []string{"data", "out/deep/x.bin"} {
		if data, err := os.ReadFile(filepath.Join(repo, name)); string(data) != "mine\n" {
			t.Errorf("%s: %q %v", name, data, err)
		}
	}
	must(t, os.Remove(filepath.Join(repo, "data")))
	must(t, os.RemoveAll(filepath.Join(repo, "out")))
	testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
	clean(t, repo)
}

// A target that cannot be moved where it is checked out is refused, and nothing is changed.
func TestMergeRefusesWhatIsCheckedOut(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, repo string)
		files   []string
		in      string
	}{
		"changed": {func(t *testing.T, repo string) { write(t, repo, "lib/b.txt", "mine\n") }, []string{"lib/b.txt"}, ""},
		"staged": {func(t *testing.T, repo string) {
			write(t, repo, "lib/b.txt", "mine\n")
			gitIn(t, repo, "add", "-A")
		}, []string{"lib/b.txt"}, ""},
		"in the way": {func(t *testing.T, repo string) { write(t, repo, "new.txt", "mine\n") }, []string{"new.txt"}, ""},
		"ignored in the way": {func(t *testing.T, repo string) {
			write(t, repo, ".git/info/exclude", "new.txt")
			write(t, repo, "new.txt", "mine\n")
		}, []string{"new.txt"}, ""},
		"hidden by skip-worktree": {func(t *testing.T, repo string) {
			gitIn(t, repo, "update-index", "--skip-worktree", "a.txt")
			write(t, repo, "a.txt", "mine\n")
		}, []string{"a.txt"}, ""},
		"hidden by assume-unchanged": {func(t *testing.T, repo string) {
			gitIn(t, repo, "update-index", "--assume-unchanged", "a.txt")
			write(t, repo, "a.txt", "mine\n")
		}, []string{"a.txt"}, ""},
		"merge": {func(t *testing.T, repo string) {
			gitIn(t, repo, "branch", "x", gitIn(t, repo, "commit-tree", "-p", "main", "-m", "x", "main^{tree}"))
			gitIn(t, repo, "merge", "-q", "--no-ff", "--no-commit", "x")
		}, nil, "merge"},
		"revert": {func(t *testing.T, repo string) {
			write(t, repo, "lib/b.txt", "x\n")
			commit(t, repo, "x")
			write(t, repo, "lib/b.txt", "y\n")
			commit(t, repo, "y")
			tryGit(repo, "revert", "HEAD~1")
		}, []string{"lib/b.txt"}, "revert"},
		"bisect": {func(t *testing.T, repo string) { gitIn(t, repo, "bisect", "start") }, nil, "bisect"},
		"rebase": {func(t *testing.T, repo string) {
			gitIn(t, repo, "branch", "x", "main")
			write(t, repo, "c.txt", "c\n")
			commit(t, repo, "c")
			tryGit(repo, "rebase", "--exec", "false", "x")
		}, nil, "rebase"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			k, path := attemptIn(t, repo)
			c.prepare(t, repo)
			before := gitIn(t, repo, "rev-parse", "main", branchName)
			for _, way := range ways {
				_, err := k.Merge(t.Context(), landing(path, way))
				refused, is := errors.AsType[*CheckedOutError](err)
				testkit.Need(t, is && refused.Operation == c.in && slices.Equal(refused.Files, c.files) && strings.Contains(refused.Command, " refs/heads/"+branchName), "%s: %+v, %v", way, refused, err)
			}
			testkit.Equal(t, gitIn(t, repo, "rev-parse", "main", branchName), before, "a branch was moved")
			testkit.Equal(t, gitIn(t, repo, "for-each-ref", "refs/deepwork"), "", "a ref is left")
			clean(t, path)
		})
	}
}

// The command that does the same by hand works for a branch with a name that a shell would read otherwise.
func TestMergeByHand(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gitIn(t, repo, "branch", "-m", "it's(1)&co")
	k, _ := newKeeper(t)
	with := tree(repo)
	with.TargetBranch = "it's(1)&co"
	path := testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{with}, nil)).Must(t)[0].Path
	write(t, path, "new.txt", "new\n")
	commit(t, path, "the work")
	write(t, repo, "a.txt", "mine\n")
	_, err := k.Merge(t.Context(), Landing{Path: path, Target: with.TargetBranch, Way: WayRebase})
	follow(t, err, "or run: ", "\n")
	testkit.Equal(t, read(t, repo, "new.txt"), "new\n")
}

// A repository with files whose config says that it has none is not merged into: its files would stay behind.
func TestField26_AWorkTreeThatIsSaidToBeBare(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, path := attemptIn(t, repo)
	gitIn(t, repo, "config", "core.bare", "true")
	testkit.Fails(t, testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Err(), "config core.bare false")
	gitIn(t, repo, "config", "core.bare", "false")
	testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
	clean(t, repo)
}

// Conflicts arise only in the attempt's worktree, where they can be resolved or undone.
func TestConflicts(t *testing.T) {
	t.Parallel()
	{
		repo := newRepo(t)
		write(t, repo, "pic.bin", "a\x00b")
		commit(t, repo, "binary")
		k, path := attemptIn(t, repo)
		write(t, path, "pic.bin", "ours\x00")
		gitIn(t, path, "rm", "-q", "lib/b.txt")
		commit(t, path, "more")
		head := gitIn(t, path, "rev-parse", "HEAD")
		write(t, repo, "a.txt", "one\ntwo\nother\n")
		write(t, repo, "pic.bin", "theirs\x00")
		write(t, repo, "lib/b.txt", "changed\n")
		write(t, repo, "added.txt", "added\n")
		main := commit(t, repo, "meanwhile")
		want := []string{"a.txt", "lib/b.txt", "pic.bin"}
		for _, way := range ways {
			_, err := k.Merge(t.Context(), landing(path, way))
			if conflict, is := errors.AsType[*ConflictError](err); !is || way != WayRebase && !slices.Equal(conflict.Files, want) {
				t.Fatalf("%s: %v", way, err)
			}
		}
		testkit.Fails(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err(), "", "rebased")
		clean(t, repo, path)
		for range 2 {
			got, err := k.Update(t.Context(), landing(path, ""))
			testkit.Need(t, err == nil && slices.Equal(got.Conflicts, want), "%+v, %v", got, err)
			text := read(t, path, "a.txt")
			testkit.True(t, strings.Contains(text, "<<<<<<< ") && strings.Contains(text, "main") && read(t, path, "added.txt") == "added\n", "a.txt is %q", text)
			if out := gitIn(t, path, "status", "--porcelain", "--untracked-files=all"); !strings.Contains(out, "UU a.txt") || !strings.Contains(out, "A  added.txt") || !strings.Contains(out, "AA pic.bin") && !strings.Contains(out, "UU pic.bin") {
				t.Errorf("status: %s", out)
			}
			testkit.FailsWith(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Err(), ErrUnfinished, "again")
			st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
			testkit.True(t, st.Merging && slices.Equal(st.Conflicts, want), "status: %+v", st)
			write(t, path, "a.txt", "half resolved\n")
			write(t, path, "loose", "loose\n")
			kept, err := k.Abort(t.Context(), path, nil)
			testkit.Need(t, err == nil && show(t, repo, kept.Ref, "a.txt") == "half resolved\n", "%+v, %v", kept, err)
			if out := gitIn(t, path, "status", "--porcelain"); out != "?? loose" || gitIn(t, path, "rev-parse", "HEAD") != head {
				t.Errorf("after abort: %s", out)
			}
			st = testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
			testkit.True(t, !st.Merging && st.Conflicts == nil, "status after abort: %+v", st)
		}
		testkit.FailsWith(t, testkit.Get(k.Abort(t.Context(), path, nil)).Err(), ErrNoMerge, "again")
		// Git would remove a repository in the place of a file.
		testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t)
		must(t, os.Remove(filepath.Join(path, "new.txt")))
		gitIn(t, path, "clone", "-q", repo, "new.txt")
		_, err := k.Abort(t.Context(), path, nil)
		expectError(t, err, ErrNotKept, "was made there")
		testkit.True(t, isThere(filepath.Join(path, "new.txt", ".git")), "the repository is lost")
		follow(t, err, "discard that with: ", "\n")
		testkit.Works(t, testkit.Get(k.Abort(t.Context(), path, nil)).Err())
		// The agent resolves it with git, and the merge goes through.
		testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t)
		write(t, path, "a.txt", "both\n")
		commit(t, path, "resolved")
		testkit.Equal(t, gitIn(t, path, "show", "-s", "--format=%P"), head+" "+main, "parents")
		testkit.Get(k.Merge(t.Context(), landing(path, WaySquash))).Must(t)
		testkit.Equal(t, show(t, repo, "main", "a.txt"), "both\n", "the resolution is not in main")
		testkit.Equal(t, read(t, repo, "a.txt"), "both\n", "the resolution is not in main")
		clean(t, repo)
		sound(t, repo, 1)
	}
}

func TestUpdateAndRebase(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, path := attemptIn(t, repo)
	gitIn(t, repo, "mv", "a.txt", "renamed.txt")
	main := commit(t, repo, "rename")
	got, err := k.Update(t.Context(), landing(path, ""))
	testkit.Need(t, err == nil && len(got.Conflicts) == 0 && read(t, path, "renamed.txt") == "one\ntwo\nthree\n" && !isThere(filepath.Join(path, "a.txt")), "%+v, %v", got, err)
	clean(t, path)
	if got, err = k.Rebase(t.Context(), landing(path, "")); err != nil || gitIn(t, path, "rev-parse", "HEAD^") != main || read(t, path, "renamed.txt") != "one\ntwo\nthree\n" {
		t.Fatalf("%+v, %v", got, err)
	}
	clean(t, path)
	testkit.Equal(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Must(t).Commit, got.Commit)
	write(t, path, "a.txt", "not committed\n")
	gitIn(t, path, "add", "a.txt")
	if _, err := k.Rebase(t.Context(), landing(path, "")); err == nil {
		t.Error("changes were rebased")
	} else if dirty, is := errors.AsType[*DirtyError](err); !is || !slices.Equal(dirty.Files, []string{"a.txt"}) {
		t.Error(err)
	}
	gitIn(t, path, "rm", "-q", "--cached", "a.txt")
	testkit.Same(t, testkit.Get(k.Merge(t.Context(), landing(path, WayRebase))).Must(t).Untracked, []string{"a.txt"})
	gitIn(t, path, "checkout", "-q", "--detach")
	if got, err := k.Merge(t.Context(), landing(path, WayMerge)); err != nil || got.Adopted == "" {
		t.Errorf("a detached HEAD: %+v, %v", got, err)
	}
	inUse := landing(path, WayMerge)
	inUse.InUse = func() bool { return true }
	testkit.FailsWith(t, testkit.Get(k.Merge(t.Context(), inUse)).Err(), ErrInUse)
}

// A submodule's commit is merged as git merges it.
func TestMergeSubmodule(t *testing.T) {
	t.Parallel()
	sub, repo := newRepo(t), newRepo(t)
	gitIn(t, repo, "submodule", "--quiet", "add", sub, "sub")
	commit(t, repo, "submodule")
	k, path := attemptIn(t, repo)
	write(t, sub, "a.txt", "newer\n")
	id := commit(t, sub, "newer")
	gitIn(t, path, "update-index", "--cacheinfo", "160000,"+id+",sub")
	gitIn(t, path, "commit", "-q", "-m", "newer submodule")
	testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
	testkit.Contains(t, gitIn(t, repo, "ls-tree", "main", "sub"), id, "the submodule")
	testkit.True(t, isThere(filepath.Join(repo, "sub", "a.txt")), "the files of the submodule were touched")
}

// A target that is moved between the merge and its last step is not overwritten.
func TestMergeOfATargetThatMoves(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		repo := newRepo(t)
		gitIn(t, repo, "checkout", "-q", "-b", "elsewhere")
		k, path := attemptIn(t, repo)
		head := gitIn(t, path, "rev-parse", "HEAD")
		moved := ""
		k.at = func(point string) {
			if point == "made the commit" && moved == "" {
				moved = gitIn(t, repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "moved")
				gitIn(t, repo, "update-ref", "refs/heads/main", moved)
			}
		}
		testkit.FailsWith(t, testkit.Get(k.Merge(t.Context(), landing(path, way))).Err(), ErrMoved)
		testkit.True(t, gitIn(t, repo, "rev-parse", "main") == moved && gitIn(t, path, "rev-parse", "HEAD") == head && gitIn(t, repo, "for-each-ref", "refs/deepwork") == "", "%s: something was changed", way)
		clean(t, repo, path)
		testkit.Works(t, testkit.Get(k.Merge(t.Context(), landing(path, way))).Err())
		clean(t, repo, path)
	}
}

// Where the user switches branches during a merge, the target is moved as it is checked out then, and no other branch.
func TestMergeWhileTheUserSwitches(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		for _, to := range []string{"main", "feature"} {
			repo := newRepo(t)
			before := tip(repo, "main")
			gitIn(t, repo, "branch", "feature")
			if to == "main" {
				gitIn(t, repo, "switch", "-q", "feature")
			}
			k, path := attemptIn(t, repo)
			k.at = func(string) { gitIn(t, repo, "switch", "-q", to) }
			testkit.Equal(t, testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t).Commit, tip(repo, "main"), "%s to %s: main", way, to)
			testkit.Equal(t, tip(repo, "feature"), before, "%s to %s: the other branch", way, to)
			clean(t, repo, path)
		}
	}
}

// Where git cannot move the target after it has changed the files of its checkout, these are taken back.
func TestMergeIntoABranchThatCannotBeMoved(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, path := attemptIn(t, repo)
	log := filepath.Join(repo, ".git", "logs", "refs", "heads", "main")
	must(t, os.Remove(log))
	write(t, log, "x", "")
	for _, way := range ways {
		testkit.Fails(t, testkit.Get(k.Merge(t.Context(), landing(path, way))).Err(), "logs/refs/heads/main")
		clean(t, repo, path)
	}
	must(t, os.RemoveAll(log))
	testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
	clean(t, repo, path)
}

// The user's checkout is found where git names the repository for it: in a submodule, and apart from its git folder.
func TestMergeWhereGitDoesNotKnowTheCheckout(t *testing.T) {
	t.Parallel()
	apart, around := newRepo(t), newRepo(t)
	gitIn(t, apart, "init", "-q", "--separate-git-dir", filepath.Join(t.TempDir(), "git"))
	gitIn(t, around, "submodule", "--quiet", "add", newRepo(t), "sub")
	for _, repo := range []string{apart, filepath.Join(around, "sub")} {
		k, path := attemptIn(t, repo)
		write(t, repo, "a.txt", "mine\n")
		_, err := k.Merge(t.Context(), landing(path, WayMerge))
		refused, is := errors.AsType[*CheckedOutError](err)
		testkit.Need(t, is && refused.Path == canonical(repo) && slices.Equal(refused.Files, []string{"a.txt"}), "%v", err)
		gitIn(t, repo, "restore", "a.txt")
		testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
		testkit.Equal(t, read(t, repo, "new.txt"), "new\n", "the checkout")
		clean(t, repo)
		testkit.Equal(t, remove(t, k), Rescue{}, "kept")
	}
}

func TestPush(t *testing.T) {
	t.Parallel()
	repo, remote := newRepo(t), filepath.Join(t.TempDir(), "remote.git")
	gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
	gitIn(t, repo, "remote", "add", "origin", remote)
	k, path := attemptIn(t, repo)
	push := func(force bool) (*Landed, error) { return k.Push(context.Background(), path, "origin", force) }
	testkit.Get(push(false)).Must(t)
	testkit.Equal(t, tip(remote, branchName), tip(path, "HEAD"), "the branch was not pushed")
	testkit.Equal(t, tip(repo, "refs/remotes/origin/"+branchName), tip(path, "HEAD"), "the branch was not pushed")
	gitIn(t, path, "commit", "-q", "--amend", "-m", "again")
	if _, err := push(false); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "non-fast-forward") {
		t.Fatal(err)
	}
	if _, err := push(true); err != nil || tip(remote, branchName) != tip(path, "HEAD") {
		t.Fatal(err)
	}
	// Somebody else pushes to it.
	other := gitIn(t, remote, "commit-tree", "main^{tree}", "-p", branchName, "-m", "other")
	gitIn(t, remote, "update-ref", "refs/heads/"+branchName, other)
	gitIn(t, path, "commit", "-q", "--amend", "-m", "third")
	if _, err := push(true); !errors.Is(err, ErrRejected) || tip(remote, branchName) != other {
		t.Fatal(err)
	}
	hook := filepath.Join(remote, "hooks", "pre-receive")
	testkit.Write(t, hook, "#!/bin/sh\necho we are closed >&2\nexit 1\n")
	testkit.Must(t, os.Chmod(hook, 0o755))
	gitIn(t, remote, "update-ref", "-d", "refs/heads/"+branchName)
	if _, err := push(false); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "we are closed") {
		t.Fatal(err)
	}
	for _, name := range []string{"nowhere", "--all", remote, ""} {
		testkit.Fails(t, testkit.Get(k.Push(t.Context(), path, name, false)).Err(), "", "pushed to %q", name)
	}
	mark := filepath.Join(t.TempDir(), "mark")
	gitIn(t, repo, "config", "remote.origin.url", "ext::touch "+mark)
	gitIn(t, repo, "config", "protocol.ext.allow", "always")
	gitIn(t, repo, "config", "remote.origin.receivepack", "touch "+mark+"; git-receive-pack")
	if _, err := push(false); err == nil || isThere(mark) {
		t.Errorf("a URL ran a program: %v", err)
	}
	os.Remove(hook)
	gitIn(t, repo, "config", "remote.origin.url", remote)
	if _, err := push(false); err != nil || isThere(mark) {
		t.Errorf("%v", err)
	}
}
