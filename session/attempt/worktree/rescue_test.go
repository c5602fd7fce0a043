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
	"deepwork/session"
)

func TestStagedUnstagedAndUntrackedWorkIsKept(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	awkward := []string{"plain", "with space", "uni-ü-日本", "deep/er/x", `quo"te\`, "-dash", ":(top)magic"}
	if runtime.GOOS != "windows" {
		awkward = append(awkward, "line\nbreak", "tab\there", "\"begins")
	} else {
		awkward = slices.Delete(awkward, 4, 7)
	}
	for _, name := range awkward {
		write(t, path, name, "content of "+name)
	}
	write(t, path, "a.txt", "staged\n", "staged-only", "was staged, then deleted", "forced.log", "ignored, but added")
	gits(t, path, "add a.txt staged-only", "add -f forced.log")
	write(t, path, "a.txt", "unstaged\n", "other.log", "ignored", "node_modules/x/y.js", "ignored")
	must(t, errors.Join(os.Remove(filepath.Join(path, "staged-only")), os.Remove(filepath.Join(path, "lib/b.txt"))))
	head, index := tip(path, "HEAD"), read(t, gitIn(t, path, "rev-parse", "--git-path", "index"))
	k.atPoint = func(point string) {
		testkit.True(t, point != "rescue ref" || read(t, gitIn(t, path, "rev-parse", "--git-path", "index")) == index,
			"the worktree's own index was touched")
	}
	r := remove(t, k)
	testkit.Need(t, r.Ref == "refs/deepwork/rescue/"+attemptID, "kept as %+v", r)
	testkit.Need(t, tip(repo, r.Ref) == r.Commit, "kept as %+v", r)
	testkit.Need(t, tip(repo, r.Commit+"^1") == head, "kept as %+v", r)
	for _, name := range awkward {
		holds(t, repo, r.Commit, name, "content of "+name)
	}
	holds(t, repo, r.Commit, "a.txt", "unstaged\n", "forced.log", "ignored, but added")
	holds(t, repo, r.Commit+"^2", "a.txt", "staged\n", "staged-only", "was staged, then deleted")
	all := files(t, repo, r.Commit)
	for _, gone := range []string{"lib/b.txt", "other.log", "node_modules/x/y.js", ".git"} {
		testkit.True(t, !slices.Contains(all, gone), "%s is in the rescue commit", gone)
	}
	testkit.Equal(t, gitIn(t, repo, "show", "-s", "--format=%an <%ae>", r.Commit), "deepwork <deepwork@localhost>",
		"it is by")
	sound(t, repo, 0)
}

// The branch stays where it has commits, is checked out elsewhere, or has the last ref to its base.
func TestBranchesThatStay(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	work := commit(t, path, "work", "done", "x")
	testkit.Equal(t, remove(t, k).Ref+tip(repo, branchName), work,
		"kept, though all is committed, or the branch lost its commit")
	sound(t, repo, 0)

	k, repo, path = started(t)
	gits(t, path, "checkout -q --detach", "-C "+repo+" checkout -q "+branchName)
	remove(t, k)
	gits(t, repo, "rev-parse --verify HEAD")

	repo, k = newRepo(t), newKeeper(t)
	gits(t, repo, "checkout -q -b gone")
	base, tr := commit(t, repo, "on gone alone", "only", "on main"), tree(repo)
	tr.TargetBranch = "gone"
	makes(t, k, tr)
	gits(t, repo, "checkout -q main", "branch -q -D gone")
	remove(t, k)
	testkit.Equal(t, tip(repo, branchName), base, "the branch")
}

func TestCommitsOnNoBranchAreKept(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	gits(t, path, "checkout -q --detach")
	left := commit(t, path, "left behind", "left", "1")
	gits(t, path, "checkout -q main~0")
	head := commit(t, path, "detached", "here", "2")
	private := gitIn(t, path, "commit-tree", "-m", "private", "HEAD^{tree}")
	gits(t, path, "update-ref refs/worktree/mine "+private)
	r := remove(t, k)
	testkit.Need(t, r.Ref != "" && tip(repo, r.Commit+"^1") == head, "kept %+v of %s", r, head)
	gits(t, repo, "merge-base --is-ancestor "+left+" "+r.Commit, "merge-base --is-ancestor "+private+" "+r.Commit)
	holds(t, repo, r.Commit, "here", "2")
	sound(t, repo, 0)
}

func TestMergeRebaseAndUnbornStatesAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps string // of git, the last of which may fail; one that is written as a = makes a file
		check func(t *testing.T, repo, conflict string, r Rescue)
	}{
		"conflicted merge": {"merge main", func(t *testing.T, repo, conflict string, r Rescue) {
			testkit.Contains(t, conflict, "<<<<<<<")
			holds(t, repo, r.Commit, "a.txt", conflict)
		}},
		"rebase with autostash": {"lib/b.txt=;rebase --autostash main", func(t *testing.T, repo, _ string, r Rescue) {
			testkit.True(t, slices.ContainsFunc(strings.Fields(gitIn(t, repo, "show", "-s", "--format=%P", r.Commit)),
				func(id string) bool {
					out, err := tryGit(repo, "show", id+":lib/b.txt")
					return err == nil && out == "not committed"
				}), "what rebase had stashed is lost")
		}},
		"orphan": {"checkout -q --orphan fresh;new=", func(t *testing.T, repo, _ string, r Rescue) {
			holds(t, repo, r.Commit, "new", "not committed", "a.txt", "ours\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			k, repo, path := started(t)
			commit(t, path, "ours", "a.txt", "ours\n")
			commit(t, repo, "theirs", "a.txt", "theirs\n")
			for step := range strings.SplitSeq(c.steps, ";") {
				if file, ok := strings.CutSuffix(step, "="); ok {
					write(t, path, file, "not committed")
				} else {
					tryGit(path, strings.Fields(step)...)
				}
			}
			c.check(t, repo, read(t, path, "a.txt"), remove(t, k))
			sound(t, repo, 0)
		})
	}
}

// Repositories that an agent made inside go with the worktree, which is refused, with what helps, and done
// only by force.
func TestRepositoriesInsideAreRefused(t *testing.T) {
	t.Parallel()
	origin := newRepo(t)
	clone := func(t *testing.T, path string) { gitIn(t, origin, "clone", "-q", origin, path) }
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string)
		says    []string
	}{
		"a clone": {func(t *testing.T, path string) {
			clone(t, filepath.Join(path, "nested"))
		}, []string{"nested was made there", "move it elsewhere", "rm -rf"}},
		"a name that a shell would run": {func(t *testing.T, path string) {
			clone(t, filepath.Join(path, "$(touch x)"))
		}, []string{"$(touch x)" + session.InShell(" ")[:1]}},
		"empty": {func(t *testing.T, path string) {
			gits(t, path, "init -q nested/deeper")
		}, []string{filepath.Join("nested", "deeper")}},
		"in a folder of the worktree": {func(t *testing.T, path string) {
			gits(t, path, "init -q lib")
			commit(t, filepath.Join(path, "lib"), "one")
			write(t, path, "lib/c.txt", "c")
		}, []string{filepath.Join("lib", ".git") + " was made there"}},
		"in the place of .git": {func(t *testing.T, path string) {
			must(t, os.Remove(filepath.Join(path, ".git")))
			gits(t, path, "init -q")
		}, []string{filepath.Join("web", ".git") + " was made there"}},
		"in the place of a file": {func(t *testing.T, path string) {
			must(t, os.Remove(filepath.Join(path, "a.txt")))
			clone(t, filepath.Join(path, "a.txt"))
			link(t, ".", filepath.Join(path, "lib", "b.txt")) // a link to a folder
		}, []string{"a.txt was made there", "rm -rf"}},
		"broken": {func(t *testing.T, path string) {
			write(t, path, "lib/.git", "gitdir: nowhere\n")
		}, []string{"lib"}},
		"a worktree beside": {func(t *testing.T, path string) {
			gits(t, path, "worktree add -q --detach "+path+"-2")
			write(t, path+"-2", "new", "n")
		}, []string{"web-2 was made there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, repo, path := started(t)
			write(t, path, "mine", "work")
			c.prepare(t, path)
			err := notRemoved(t, k)
			nested, ok := errors.AsType[*NestedError](err)
			testkit.Need(t, ok && len(nested.Found) == 1, "%v", err)
			testkit.FailsWith(t, err, ErrNotKept)
			testkit.ContainsAll(t, err.Error(), c.says)

			reads(t, path, "mine", "work")
			testkit.Equal(t, refs(t, repo, "refs/deepwork"), "", "something was changed")

			kept, discarded, err := k.Remove(t.Context(), attemptID, true, nil)
			testkit.Need(t, err == nil, "kept %+v, discarded %+v, %v", kept, discarded, err)
			testkit.Need(t, len(kept) == 1, "kept %+v, discarded %+v, %v", kept, discarded, err)
			testkit.Need(t, len(discarded) == 1, "kept %+v, discarded %+v, %v", kept, discarded, err)
			testkit.True(t, !strings.Contains(strings.Join(files(t, repo, kept[0].Commit), "\n"), "nested"),
				"the repository is kept")
			holds(t, repo, kept[0].Commit, "mine", "work")
			if strings.Contains(name, "folder") {
				holds(t, repo, kept[0].Commit, "lib/c.txt", "c")
			}
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
			// whose files are not those of the attempt
			k := New(Options{Dir: filepath.Join(repo, ".deepwork", "worktrees")})
			path := create(t, k, repo)
			write(t, path, "new", "work", "a.txt", "changed", "staged", "staged")
			gits(t, path, "add staged")
			want := []string{"new", "work", "a.txt", "changed", "staged", "staged"}
			switch c {
			case "removed":
				must(t, os.Remove(filepath.Join(path, ".git")))
				testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed,
					[]string{"a.txt", "new", "staged"}, "status")
			case "pruned":
				must(t, os.RemoveAll(adminOf(filepath.Join(canonical(repo), ".git"), path)))
			case "deleted by hand":
				must(t, os.RemoveAll(path))
				want = []string{"a.txt", "one\ntwo\n"}
			}
			r := remove(t, k)
			holds(t, repo, r.Commit, want...)
			if c == "deleted by hand" {
				holds(t, repo, r.Commit+"^2", "staged", "staged")
			}
			sound(t, repo, 0)
			must(t, os.MkdirAll(path, 0o755)) // in the checkout, with neither .git nor journal
			_, _, err := k.Diff(t.Context(), path, "", "main", nil, 0)
			testkit.FailsWith(t, err, ErrNoWorktree, "diff")
			testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Err(), ErrNoWorktree, "status")
		})
	}
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	lib := newRepo(t)
	repo := newRepo(t)
	k := newKeeper(t)
	old(t, lib) // which only a tag has in the end, and is no work
	gits(t, repo, "-C "+lib+" tag v1 develop", "-C "+lib+" branch -q -D develop", "submodule add -q "+lib+" sub",
		"submodule add -q "+lib+" other")
	commit(t, repo, "submodules")
	path := create(t, k, repo)
	sub := filepath.Join(path, "sub")
	gits(t, path, "submodule update -q --init sub")

	// as such a clone is
	shallow := []string{"remote set-head origin -d", "update-ref -d refs/remotes/origin/main", "tag -d v1"}
	gits(t, sub, shallow...)
	testkit.Equal(t, remove(t, k).Ref, "", "kept")

	path = create(t, k, repo)
	gits(t, path, "submodule update -q --init sub")
	refused := func(text string) error {
		t.Helper()
		err := notRemoved(t, k)
		testkit.FailsWith(t, err, ErrNotKept, "%v, want %s", err, text)
		testkit.Equal(t, strings.Count(err.Error(), "the repository "), 1, "%v, want %s", err, text)
		testkit.Contains(t, err.Error(), text, "%v, want %s", err, text)
		return err
	}

	const push = "push -q origin HEAD:refs/heads/sub"
	write(t, sub, "new", "in the submodule")
	refused("add -A")
	commit(t, sub, "in the submodule")
	refused(fmt.Sprintf("git -C %s push origin %s:refs/heads/sub-", sub, tip(sub, "HEAD")))
	gits(t, sub, "checkout -q -b aside") // the commit is on a branch, and a stash beside it
	write(t, sub, "a.txt", "stashed")
	gits(t, sub, "stash -q", push)
	follow(t, notRemoved(t, k), "publish that with: ", ";")
	gits(t, sub, "-C "+lib+" commit -q --allow-empty -m newer", "submodule --quiet add "+lib+" inner")
	gits(t, filepath.Join(sub, "inner"), shallow...)
	commit(t, sub, "inner")
	gits(t, sub, push)
	write(t, sub, "inner/new", "n")
	refused(fmt.Sprintf("git -C %s add -A", filepath.Join(sub, "inner")))
	must(t, os.Remove(filepath.Join(sub, "inner", "new")))
	write(t, path, "other/hidden", "in a submodule that is not checked out")
	follow(t, refused("not checked out"), "discard that with: ", "\n")
	left := commit(t, sub, "left", "left", "x")
	gits(t, path, "add sub", "submodule --quiet deinit --force sub")
	follow(t, refused(filepath.Join("modules", "sub")+" has commits that are nowhere else"), "publish that with: ", ";")
	write(t, gitIn(t, path, "rev-parse", "--absolute-git-dir"), "modules/a/broken/HEAD", "")
	follow(t, refused("broken cannot be read"), "discard that with: ", "\n")
	testkit.Contains(t, gitIn(t, repo, "ls-tree", remove(t, k).Commit, "sub"), left, "the submodule's new commit")
}

// Files are kept as git add stores them. Line ends are no work, and a filter of the repository does not
// run; one of the user that fails is left out.
func TestFilesAreKeptAsGitStoresThem(t *testing.T) {
	asUser(t, "[filter \"bad\"]\n\tclean = exit 1\n\tsmudge = cat\n\trequired = true\n")
	repo := newRepo(t)
	k := newKeeper(t)
	mark := filepath.Join(t.TempDir(), "mark")
	commit(t, repo, "attributes", ".gitattributes", "*.crlf text eol=crlf\n*.up filter=up\n*.bad filter=bad\n",
		"t.crlf", "a\r\nb\r\n")
	gits(t, repo, "config core.autocrlf true")
	gitIn(t, repo, "config", "filter.up.clean", "touch "+mark+"; tr a-z A-Z")
	path := create(t, k, repo)
	reads(t, path, "t.crlf", "a\r\nb\r\n")
	testkit.Equal(t, remove(t, k).Ref, "", "line ends were taken for work")

	const text = "\x00\x01\r\n\n\r\xff"
	write(t, create(t, k, repo), "new.up", text, "new.bad", text, "binary", text)
	holds(t, repo, remove(t, k).Commit, "new.up", text, "new.bad", text, "binary", text)
	testkit.True(t, !isThere(mark), "the repository's filter ran")
}

func TestFlagsAndSparseCheckoutsHideNothing(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	commit(t, repo, "big", "big/x", "x", "big/y", "y")
	path := create(t, k, repo)
	gits(t, path, "sparse-checkout set --no-cone /* !/big/", "update-index --assume-unchanged a.txt",
		"update-index --skip-worktree lib/b.txt")
	testkit.Need(t, !isThere(filepath.Join(path, "big")), "it is not sparse")

	write(t, path, "a.txt", "hidden change", "lib/b.txt", "hidden too", "big/x", "changed behind its back",
		"big/z", "new")
	holds(t, repo, remove(t, k).Commit, "a.txt", "hidden change", "lib/b.txt", "hidden too", "big/x",
		"changed behind its back", "big/y", "y", "big/z", "new")

	// As files there are committed.
	path = create(t, k, repo)
	gits(t, path, "sparse-checkout set lib")
	write(t, path, "big/x", "changed", "big/z", "new")
	must(t, k.Commit(t.Context(), path, "all"))
	testkit.Equal(t, gitIn(t, path, "show", "--format=", "--name-only"), "big/x\nbig/z", "the commit has")
}

// Nothing is removed while it is in use, without its repository, or without its journal.
func TestNothingIsRemovedThatIsInUseOrCannotBeKept(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	write(t, path, "new", "work")
	for n, what := range []string{"in use", "used just before it is removed"} {
		asked := 0
		_, _, err := k.Remove(t.Context(), attemptID, false, func() bool {
			asked++
			return asked > n
		})
		testkit.FailsWith(t, err, ErrInUse, "%s", what)
	}
	gits(t, repo, "worktree lock --reason mine "+path)
	expectError(t, notRemoved(t, k), ErrInUse, "(mine). This unlocks it: git -C ")
	// What was refused is not finished behind anybody's back.
	testkit.Same(t, testkit.Get(k.Recover(t.Context(), func(string) bool { return true })).Must(t), nil, "recovered")
	gits(t, repo, "worktree unlock "+path)
	must(t, os.Rename(repo, repo+"-away"))
	expectError(t, notRemoved(t, k), ErrNotKept, "put it back")
	must(t, os.Rename(repo+"-away", repo))
	reads(t, path, "new", "work")
	holds(t, repo, remove(t, k).Commit, "new", "work")

	path = create(t, k, repo)
	write(t, path, "new", "work")
	must(t, os.RemoveAll(k.journal))
	testkit.Fails(t, notRemoved(t, k), "by hand")
	reads(t, path, "new", "work")

	k, repo, path = started(t)
	must(t, errors.Join(os.RemoveAll(repo), os.RemoveAll(path))) // as the refusal says
	testkit.Equal(t, remove(t, k).Ref, "", "kept")

	// One that was made again in its place keeps all files.
	k, repo, path = started(t)
	must(t, os.RemoveAll(filepath.Join(repo, ".git")))
	gits(t, repo, "init -q")
	write(t, path, "new", "work")
	holds(t, repo, remove(t, k).Commit, "new", "work", "a.txt", "one\ntwo\n")
}

// Folders that may not be written to go, too.
func TestAnAttemptMadeAgainKeepsEarlierRescues(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	seen := map[string]string{}
	for _, text := range []string{"first", "second", "third"} {
		path := create(t, k, repo)
		write(t, path, "new", text, "node_modules/cache/pkg/file", "x")
		for _, dir := range []string{"node_modules/cache/pkg", "node_modules/cache"} {
			must(t, os.Chmod(filepath.Join(path, dir), 0o500))
		}
		r := remove(t, k)
		testkit.Equal(t, seen[r.Ref], "", "%s was overwritten", r.Ref)
		seen[r.Ref] = text
	}
	for ref, text := range seen {
		holds(t, repo, ref, "new", text)
	}
}

// Two repositories of an attempt that are one are not mixed up, and what lay beside the worktrees is kept. A
// caller that removes the attempt again, after a crash has cut the answer off, is told what was kept all the
// same.
func TestRescuesOfOneRepositoryAreListedLater(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	other := newRepo(t)
	k := newKeeper(t)
	trees := []Tree{tree(repo), {
		RepoID:       "r2",
		Name:         "web again",
		Repo:         filepath.Join(repo, "lib"),
		TargetBranch: "main",
	}, {RepoID: "r3", Name: "api", Repo: other, TargetBranch: "main"}}
	done, another := makes(t, k, trees...), attemptID[:35]+"1"
	testkit.Get(k.Create(t.Context(), another, branchName+"x", trees[:1], nil)).Must(t)
	for _, m := range done[:2] {
		write(t, m.Path, "new", "work in "+m.RepoID)
	}
	write(t, k.folder(attemptID), "notes", "beside")
	want, _, err := k.Remove(t.Context(), attemptID, false, nil)
	testkit.Need(t, err == nil && len(want) == 3, "%+v %v", want, err)

	for i, file := range [][2]string{{"new", "work in r1"}, {"new", "work in r2"}, {"notes", "beside"}} {
		testkit.Equal(t, want[i].Ref+tip(repo, want[i].Ref),
			"refs/deepwork/rescue/"+attemptID+[]string{"", "-2", "-3"}[i]+want[i].Commit, "ref %d", i)
		holds(t, repo, want[i].Commit, file[:]...)
	}
	sound(t, repo, 1)
	write(t, filepath.Join(k.folder(another), "web"), "new", "another's")
	_, _, err = k.Remove(t.Context(), another, false, nil)
	must(t, err)
	got := testkit.Get(k.Rescues(t.Context(), attemptID,
		[]string{repo, other, filepath.Join(repo, "lib"), filepath.Join(repo, "gone")})).Must(t)
	for _, w := range want {
		w.Repo = repo
		testkit.True(t, len(got) == 3 && slices.Contains(got, w), "%+v is not among %+v", w, got)
	}
	testkit.Same(t, testkit.Get(k.Rescues(t.Context(), attemptID, []string{other})).Must(t), nil)
}

// Where the system's folder for temporary files is missing, as in a container, work is kept as everywhere.
func TestWorkIsKeptWithoutTheSystemsTemporaryFolder(t *testing.T) {
	k, repo, path := started(t)
	write(t, path, "new.txt", "work")
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, filepath.Join(path, "missing"))
	}
	holds(t, repo, remove(t, k).Commit, "new.txt", "work")
}
