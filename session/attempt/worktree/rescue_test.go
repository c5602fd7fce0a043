package worktree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestStagedUnstagedAndUntrackedWorkIsKept(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	awkward := []string{"plain", "with space", "uni-ü-日本", "deep/er/x", `quo"te\`, "-dash", ":(top)magic"}
	if runtime.GOOS != "windows" {
		awkward = append(awkward, "line\nbreak", "tab\there", "\"begins")
	} else {
		awkward = slices.Delete(awkward, 4, 7)
	}
	for _, name := range awkward {
		write(t, path, name, "content of "+name)
	}
	write(t, path, "a.txt", "staged\n")
	write(t, path, "staged-only", "was staged, then deleted")
	gitIn(t, path, "add", "a.txt", "staged-only")
	write(t, path, "a.txt", "unstaged\n")
	os.Remove(filepath.Join(path, "staged-only"))
	os.Remove(filepath.Join(path, "lib/b.txt"))
	write(t, path, "forced.log", "ignored, but added")
	gitIn(t, path, "add", "-f", "forced.log")
	write(t, path, "other.log", "ignored")
	write(t, path, "node_modules/x/y.js", "ignored")
	head := gitIn(t, path, "rev-parse", "HEAD")
	index := read(t, gitIn(t, path, "rev-parse", "--git-path", "index"))
	k.at = func(point string) {
		testkit.True(t, point != "rescue ref" || read(t, gitIn(t, path, "rev-parse", "--git-path", "index")) == index, "the worktree's own index was touched")
	}

	r := remove(t, k)
	testkit.Need(t, r.Ref == "refs/deepwork/rescue/"+attemptID && gitIn(t, repo, "rev-parse", r.Ref) == r.Commit, "kept as %+v", r)
	for _, name := range awkward {
		testkit.Equal(t, show(t, repo, r.Commit, name), "content of "+name, "%q holds", name)
	}
	testkit.Equal(t, show(t, repo, r.Commit, "a.txt"), "unstaged\n", "a.txt holds")
	testkit.Equal(t, show(t, repo, r.Commit, "forced.log"), "ignored, but added", "an ignored file that was added is lost")
	testkit.Equal(t, gitIn(t, repo, "rev-parse", r.Commit+"^1"), head, "the first parent is not HEAD")
	testkit.Equal(t, show(t, repo, r.Commit+"^2", "a.txt"), "staged\n", "staged")
	testkit.Equal(t, show(t, repo, r.Commit+"^2", "staged-only"), "was staged, then deleted", "a file that was only staged is lost")
	all := files(t, repo, r.Commit)
	for _, gone := range []string{"lib/b.txt", "other.log", "node_modules/x/y.js", ".git"} {
		testkit.True(t, !slices.Contains(all, gone), "%s is in the rescue commit", gone)
	}
	testkit.Equal(t, gitIn(t, repo, "show", "-s", "--format=%an <%ae>", r.Commit), "deepwork <deepwork@localhost>", "it is by")
	sound(t, repo, 0)
}

func TestCommitsStayAndEmptyBranchesGo(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "done", "x")
	tip := commit(t, path, "work")
	testkit.Equal(t, remove(t, k).Ref, "", "kept, though all is committed")
	testkit.Equal(t, gitIn(t, repo, "rev-parse", branchName), tip, "the branch lost its commit")
	sound(t, repo, 0)
}

func TestBranchThatIsCheckedOutElsewhereStays(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	gitIn(t, path, "checkout", "-q", "--detach")
	gitIn(t, repo, "checkout", "-q", branchName)
	remove(t, k)
	gitIn(t, repo, "rev-parse", "--verify", "HEAD")
}

func TestBranchWithTheLastRefToItsBaseStays(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "only", "on main")
	gitIn(t, repo, "checkout", "-q", "-b", "gone")
	base := commit(t, repo, "on gone alone")
	k, _ := newKeeper(t)
	tr := tree(repo)
	tr.TargetBranch = "gone"
	testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)).Must(t)
	gitIn(t, repo, "checkout", "-q", "main")
	gitIn(t, repo, "branch", "-q", "-D", "gone")
	remove(t, k)
	testkit.Equal(t, gitIn(t, repo, "rev-parse", branchName), base, "the branch")
}

func TestCommitsOnNoBranchAreKept(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	gitIn(t, path, "checkout", "-q", "--detach")
	write(t, path, "left", "1")
	left := commit(t, path, "left behind")
	gitIn(t, path, "checkout", "-q", "main~0")
	write(t, path, "here", "2")
	head := commit(t, path, "detached")
	gitIn(t, path, "update-ref", "refs/worktree/mine", gitIn(t, path, "commit-tree", "-m", "private", "HEAD^{tree}"))
	private := gitIn(t, path, "rev-parse", "refs/worktree/mine")
	r := remove(t, k)
	testkit.Need(t, r.Ref != "", "nothing was kept")
	testkit.Equal(t, gitIn(t, repo, "rev-parse", r.Commit+"^1"), head, "the first parent is not HEAD")
	for _, id := range []string{left, private} {
		testkit.Works(t, testkit.Get(tryGit(repo, "merge-base", "--is-ancestor", id, r.Commit)).Err(), "commit %s is lost", id)
	}
	testkit.Equal(t, show(t, repo, r.Commit, "here"), "2", "the tree is not HEAD's")
	sound(t, repo, 0)
}

func TestMergeRebaseAndUnbornStatesAreKept(t *testing.T) {
	t.Parallel()
	prepare := func(t *testing.T) (*Keeper, string, string) {
		repo := newRepo(t)
		k, _ := newKeeper(t)
		path := create(t, k, repo)
		write(t, path, "a.txt", "ours\n")
		commit(t, path, "ours")
		write(t, repo, "a.txt", "theirs\n")
		commit(t, repo, "theirs")
		return k, repo, path
	}
	t.Run("conflicted merge", func(t *testing.T) {
		k, repo, path := prepare(t)
		if _, err := tryGit(path, "merge", "main"); err == nil {
			t.Fatal("there is no conflict")
		}
		conflict := read(t, path, "a.txt")
		r := remove(t, k)
		testkit.Equal(t, show(t, repo, r.Commit, "a.txt"), conflict, "the file in conflict is lost")
		sound(t, repo, 0)
	})
	t.Run("rebase with autostash", func(t *testing.T) {
		k, repo, path := prepare(t)
		write(t, path, "lib/b.txt", "not committed\n")
		if _, err := tryGit(path, "rebase", "--autostash", "main"); err == nil {
			t.Fatal("there is no conflict")
		}
		testkit.Need(t, read(t, path, "lib/b.txt") == "bee\n", "it was not stashed")
		r := remove(t, k)
		found := false
		for _, id := range strings.Fields(gitIn(t, repo, "show", "-s", "--format=%P", r.Commit)) {
			if out, err := tryGit(repo, "show", id+":lib/b.txt"); err == nil && out == "not committed" {
				found = true
			}
		}
		testkit.True(t, found, "what rebase had stashed is lost")
		sound(t, repo, 0)
	})
	t.Run("orphan", func(t *testing.T) {
		k, repo, path := prepare(t)
		gitIn(t, path, "checkout", "-q", "--orphan", "fresh")
		write(t, path, "new", "n")
		r := remove(t, k)
		testkit.Equal(t, show(t, repo, r.Commit, "new"), "n", "work on a branch without commits is lost")
		testkit.Equal(t, show(t, repo, r.Commit, "a.txt"), "ours\n", "work on a branch without commits is lost")
		sound(t, repo, 0)
	})
}

// Repositories that an agent made inside go with the worktree, which is refused, with what helps, and done
// only by force.
func TestRepositoriesInsideAreRefused(t *testing.T) {
	t.Parallel()
	origin := newRepo(t)
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		says    []string
	}{
		"a clone": {func(t *testing.T, path string) {
			gitIn(t, origin, "clone", "-q", origin, filepath.Join(path, "nested"))
		}, []string{"nested was made there", "move it elsewhere", "rm -rf"}},
		"empty": {func(t *testing.T, path string) { gitIn(t, path, "init", "-q", "nested/deeper") }, []string{filepath.Join("nested", "deeper")}},
		"in a folder of the worktree": {func(t *testing.T, path string) {
			gitIn(t, path, "init", "-q", "lib")
			commit(t, filepath.Join(path, "lib"), "one")
			write(t, path, "lib/c.txt", "c")
		}, []string{filepath.Join("lib", ".git") + " was made there"}},
		"in the place of .git": {func(t *testing.T, path string) {
			must(t, os.Remove(filepath.Join(path, ".git")))
			gitIn(t, path, "init", "-q")
		}, []string{filepath.Join("web", ".git") + " was made there"}},
		"in the place of a file": {func(t *testing.T, path string) {
			must(t, os.Remove(filepath.Join(path, "a.txt")))
			gitIn(t, origin, "clone", "-q", origin, filepath.Join(path, "a.txt"))
			link(t, ".", filepath.Join(path, "lib", "b.txt")) // a link to a folder
		}, []string{"a.txt was made there", "rm -rf"}},
		"broken": {func(t *testing.T, path string) { write(t, path, "lib/.git", "gitdir: nowhere\n") }, []string{"lib"}},
		"a worktree beside": {func(t *testing.T, path string) {
			gitIn(t, path, "worktree", "add", "-q", "--detach", path+"-2")
			write(t, path+"-2", "new", "n")
		}, []string{"web-2 was made there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			k, _ := newKeeper(t)
			path := create(t, k, repo)
			write(t, path, "mine", "work")
			c.prepare(t, path)
			_, _, err := k.Remove(t.Context(), attemptID, false, nil)
			if nested, is := errors.AsType[*NestedError](err); !is || len(nested.Found) != 1 {
				t.Fatal(err)
			}
			for _, text := range c.says {
				expectError(t, err, ErrNotKept, text)
			}
			testkit.Equal(t, read(t, path, "mine"), "work", "something was changed")
			testkit.Equal(t, gitIn(t, repo, "for-each-ref", "refs/deepwork"), "", "something was changed")
			kept, discarded, err := k.Remove(t.Context(), attemptID, true, nil)
			testkit.Need(t, err == nil && len(kept) == 1 && len(discarded) == 1, "kept %+v, discarded %+v, %v", kept, discarded, err)
			for _, file := range files(t, repo, kept[0].Commit) {
				testkit.True(t, !strings.HasPrefix(file, "nested"), "%s is kept", file)
			}
			testkit.True(t, show(t, repo, kept[0].Commit, "mine") == "work" && (!strings.Contains(name, "folder") || show(t, repo, kept[0].Commit, "lib/c.txt") == "c"), "the worktree's own work is lost")
			nothingLeft(t, k)
		})
	}
}

func TestReplacedAndRemovedGitFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"removed", "pruned", "deleted by hand"} {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			k, _ := newKeeper(t)
			path := create(t, k, repo)
			write(t, path, "new", "work")
			write(t, path, "a.txt", "changed")
			write(t, path, "staged", "staged")
			gitIn(t, path, "add", "staged")
			switch c {
			case "removed":
				os.Remove(filepath.Join(path, ".git"))
				st, err := k.Status(t.Context(), path, "", "main")
				testkit.True(t, err == nil && slices.Contains(st.Changed, "new"), "status: %+v, %v", st, err)
			case "pruned":
				os.RemoveAll(adminOf(filepath.Join(canonical(repo), ".git"), path))
			case "deleted by hand":
				os.RemoveAll(path)
			}
			r := remove(t, k)
			want := map[string]string{"new": "work", "a.txt": "changed", "staged": "staged"}
			if c == "deleted by hand" {
				testkit.Equal(t, show(t, repo, r.Commit+"^2", "staged"), "staged", "what was staged is lost")
				want = map[string]string{"a.txt": "one\ntwo\n"}
			}
			for name, text := range want {
				testkit.Equal(t, show(t, repo, r.Commit, name), text, "%s holds", name)
			}
			sound(t, repo, 0)
		})
	}
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	lib, repo := newRepo(t), newRepo(t)
	gitIn(t, repo, "submodule", "add", "-q", lib, "sub")
	gitIn(t, repo, "submodule", "add", "-q", lib, "other")
	commit(t, repo, "submodules")
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	gitIn(t, path, "submodule", "update", "-q", "--init", "sub")
	testkit.Equal(t, remove(t, k).Ref, "", "kept")
	path = create(t, k, repo)
	gitIn(t, path, "submodule", "update", "-q", "--init", "sub")
	sub := filepath.Join(path, "sub")
	refused := func(text string) {
		t.Helper()
		_, _, err := k.Remove(t.Context(), attemptID, false, nil)
		expectError(t, err, ErrNotKept, text)
	}
	write(t, sub, "new", "in the submodule")
	refused("add -A")
	commit(t, sub, "in the submodule")
	refused(fmt.Sprintf("git -C %q push origin HEAD:refs/heads/sub", sub))
	write(t, path, "other/hidden", "in a submodule that is not checked out")
	refused("not checked out")
	must(t, os.RemoveAll(filepath.Join(path, "other")))
	gitIn(t, sub, "checkout", "-q", "-b", "aside") // the commit is on a branch, and a stash beside it
	write(t, sub, "a.txt", "stashed")
	gitIn(t, sub, "stash", "-q")
	gitIn(t, sub, "push", "-q", "origin", "HEAD:refs/heads/sub")
	refused("commits that are nowhere else")
	gitIn(t, sub, "stash", "drop", "-q")
	gitIn(t, sub, "submodule", "--quiet", "add", lib, "inner")
	commit(t, sub, "inner")
	gitIn(t, sub, "push", "-q", "origin", "HEAD:refs/heads/sub")
	write(t, sub, "inner/new", "n")
	refused(fmt.Sprintf("git -C %q add -A", filepath.Join(sub, "inner")))
	must(t, os.Remove(filepath.Join(sub, "inner", "new")))
	gitIn(t, sub, "push", "-q", "origin", "HEAD:refs/heads/sub") // as it was told
	gitIn(t, path, "add", "sub")
	r := remove(t, k)
	testkit.True(t, r.Ref != "" && strings.Contains(gitIn(t, repo, "ls-tree", r.Commit, "sub"), gitIn(t, lib, "rev-parse", "sub")), "the submodule's new commit is lost: %+v", r)
}

// Files are kept as git add stores them. Line ends are no work, and a filter of the repository does not
// run; one of the user that fails is left out.
func TestFilesAreKeptAsGitStoresThem(t *testing.T) {
	asUser(t, "[filter \"bad\"]\n\tclean = exit 1\n\tsmudge = cat\n\trequired = true\n")
	repo := newRepo(t)
	write(t, repo, ".gitattributes", "*.crlf text eol=crlf\n*.up filter=up\n*.bad filter=bad\n")
	write(t, repo, "t.crlf", "a\r\nb\r\n")
	commit(t, repo, "attributes")
	mark := filepath.Join(t.TempDir(), "mark")
	gitIn(t, repo, "config", "core.autocrlf", "true")
	gitIn(t, repo, "config", "filter.up.clean", "touch "+mark+"; tr a-z A-Z")
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	got := read(t, path, "t.crlf")
	testkit.Need(t, got == "a\r\nb\r\n", "checked out as %q", got)
	testkit.Equal(t, remove(t, k).Ref, "", "line ends were taken for work")
	path = create(t, k, repo)
	for _, name := range []string{"new.up", "new.bad", "binary"} {
		write(t, path, name, "\x00\x01\r\n\n\r\xff"+name)
	}
	r := remove(t, k)
	for _, name := range []string{"new.up", "new.bad", "binary"} {
		testkit.Equal(t, show(t, repo, r.Commit, name), "\x00\x01\r\n\n\r\xff"+name, "%s holds", name)
	}
	testkit.True(t, !isThere(mark), "the repository's filter ran")
}

func TestFlagsAndSparseCheckoutsHideNothing(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "big/x", "x")
	write(t, repo, "big/y", "y")
	commit(t, repo, "big")
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	gitIn(t, path, "sparse-checkout", "set", "--no-cone", "/*", "!/big/")
	testkit.Need(t, !isThere(filepath.Join(path, "big")), "it is not sparse")
	gitIn(t, path, "update-index", "--assume-unchanged", "a.txt")
	gitIn(t, path, "update-index", "--skip-worktree", "lib/b.txt")
	write(t, path, "a.txt", "hidden change")
	write(t, path, "lib/b.txt", "hidden too")
	write(t, path, "big/x", "changed behind its back")
	write(t, path, "big/z", "new")
	r := remove(t, k)
	for name, want := range map[string]string{"a.txt": "hidden change", "lib/b.txt": "hidden too", "big/x": "changed behind its back", "big/y": "y", "big/z": "new"} {
		testkit.Equal(t, show(t, repo, r.Commit, name), want, "%s holds", name)
	}
	// As files there are committed.
	path = create(t, k, repo)
	gitIn(t, path, "sparse-checkout", "set", "lib")
	write(t, path, "big/x", "changed")
	write(t, path, "big/z", "new")
	testkit.Must(t, k.Commit(t.Context(), path, "all"))
	testkit.Equal(t, gitIn(t, path, "show", "--format=", "--name-only"), "big/x\nbig/z", "the commit has")
}

func TestNothingIsRemovedWhileInUse(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new", "work")
	if _, _, err := k.Remove(t.Context(), attemptID, false, func() bool { return true }); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	asked := 0
	if _, _, err := k.Remove(t.Context(), attemptID, false, func() bool { asked++; return asked > 1 }); !errors.Is(err, ErrInUse) {
		t.Errorf("used just before it is removed: got %v", err)
	}
	gitIn(t, repo, "worktree", "lock", "--reason", "mine", path)
	if _, _, err := k.Remove(t.Context(), attemptID, false, nil); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "(mine). This unlocks it: git -C ") {
		t.Errorf("locked: got %v", err)
	}
	// What was refused is not finished behind anybody's back.
	did := testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t)
	testkit.True(t, len(did) == 0, "recovered %v", did)
	testkit.Equal(t, read(t, path, "new"), "work", "the work is gone")
	gitIn(t, repo, "worktree", "unlock", path)
	testkit.Equal(t, show(t, repo, remove(t, k).Commit, "new"), "work", "the work is lost")
}

func TestAnAttemptMadeAgainKeepsEarlierRescues(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	seen := map[string]string{}
	for _, text := range []string{"first", "second", "third"} {
		write(t, create(t, k, repo), "new", text)
		r := remove(t, k)
		testkit.Equal(t, seen[r.Ref], "", "%s was overwritten", r.Ref)
		seen[r.Ref] = text
	}
	for ref, text := range seen {
		testkit.Equal(t, show(t, repo, ref, "new"), text, "is lost")
	}
}

func TestReadOnlyFoldersAreDeleted(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "node_modules/cache/pkg/file", "x")
	for _, dir := range []string{"node_modules/cache/pkg", "node_modules/cache"} {
		must(t, os.Chmod(filepath.Join(path, dir), 0o500))
	}
	remove(t, k)
}

func TestAttemptWithoutItsJournalStays(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new", "work")
	os.RemoveAll(k.journal)
	if _, _, err := k.Remove(t.Context(), attemptID, false, nil); err == nil || !strings.Contains(err.Error(), "by hand") || read(t, path, "new") != "work" {
		t.Errorf("the work is lost, or nobody is told: %v", err)
	}
}

func TestWhatCannotBeKeptIsNotRemoved(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new", "work")
	away := repo + "-away"
	must(t, os.Rename(repo, away))
	if _, _, err := k.Remove(t.Context(), attemptID, false, nil); !errors.Is(err, ErrNotKept) || !strings.Contains(err.Error(), "put it back") {
		t.Errorf("got %v", err)
	}
	testkit.Equal(t, read(t, path, "new"), "work", "the work is gone")
	must(t, os.Rename(away, repo))
	testkit.Equal(t, show(t, repo, remove(t, k).Commit, "new"), "work", "the work is lost")
}

func TestRepositoriesWithSHA256(t *testing.T) {
	t.Parallel()
	repo := filepath.Join(t.TempDir(), "repo")
	if _, err := tryGit(".", "init", "-q", "-b", "main", "--object-format=sha256", repo); err != nil {
		t.Skip("this git has no sha256")
	}
	write(t, repo, "a", "a")
	write(t, repo, "b", "b")
	commit(t, repo, "first")
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "a", "changed")
	os.Remove(filepath.Join(path, "b"))
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, gitIn(t, repo, "rev-parse", "HEAD"), "")).Must(t).Changed, []string{"a", "b"}, "status")
	r := remove(t, k)
	testkit.True(t, show(t, repo, r.Commit, "a") == "changed" && !slices.Contains(files(t, repo, r.Commit), "b"), "work is lost")
	sound(t, repo, 0)
}
