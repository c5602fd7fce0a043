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

func landing(path string, way Way) Landing {
	return Landing{Path: path, Target: "main", Way: way, Message: "Do it"}
}

var ways = []Way{WayMerge, WaySquash, WayRebase}

func merge(t testing.TB, k *Keeper, path string, way Way) (*Landed, error) {
	return k.Merge(t.Context(), landing(path, way))
}

func merged(t testing.TB, k *Keeper, path string, way Way) *Landed {
	t.Helper()
	return testkit.Get(merge(t, k, path, way)).Must(t)
}

func notMerged(t testing.TB, k *Keeper, path string, way Way) error {
	t.Helper()
	return testkit.Get(merge(t, k, path, way)).Err()
}

// checkedOut ends the test unless a merge was refused for what is checked out.
func checkedOut(t testing.TB, err error) *CheckedOutError {
	t.Helper()
	refused, ok := errors.AsType[*CheckedOutError](err)
	testkit.Need(t, ok, "%v", err)
	return refused
}

func TestMergeEachWay(t *testing.T) {
	t.Parallel()
	for _, away := range []bool{false, true} {
		for _, way := range ways {
			t.Run(string(way)+map[bool]string{true: ", checked out nowhere"}[away], func(t *testing.T) {
				k, repo, path := worked(t)
				before := commit(t, repo, "meanwhile", "lib/b.txt", "moved on\n")
				if away {
					gits(t, repo, "checkout -q -b elsewhere")
				}
				got := merged(t, k, path, way)
				testkit.Equal(t, got.Before+got.Commit, before+tip(repo, "main"), "landed")
				holds(t, repo, "main", "new.txt", "new\n", "a.txt", "one\ntwo\nthree\n", "lib/b.txt", "moved on\n")
				parents, second := tip(repo, "main^1"), tip(repo, "main^2")
				testkit.True(t, parents == before && (second != "") == (way == WayMerge), "its parents are %s, %s",
					parents, second)

				by := "Una User una@example.com Una User Do it"
				if way == WayRebase {
					by = "Tester tester@example.com Una User the work"
				}
				testkit.Equal(t, gitIn(t, repo, "show", "-s", "--format=%an %ae %cn %s", "main"), by,
					"the commit is by")

				clean(t, repo, path)
				testkit.Equal(t, gitIn(t, path, "symbolic-ref", "--short", "HEAD"), branchName, "the worktree is on")
				testkit.Equal(t, refs(t, repo, "refs/deepwork/before") != "", way != WayMerge, "kept")
				sound(t, repo, 1)
				again := merged(t, k, path, way)
				testkit.Equal(t, again.Before, again.Commit, "again")

				// More work in the same lines, and a second merge.
				commit(t, path, "more", "a.txt", "one\ntwo\nfour\n")
				merged(t, k, path, way)
				holds(t, repo, "main", "a.txt", "one\ntwo\nfour\n")
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
	commit(t, repo, "both", "was-dir/x.txt", "x\n", "was-file", "x\n")
	k, path := attemptIn(t, repo)
	gits(t, path, "rm -rq was-dir was-file")
	commit(t, path, "others", "was-dir", "x\n", "was-file/x.txt", "x\n", "data/x.txt", "x\n", "out", "x\n")
	write(t, repo, ".git/info/exclude", "data\nout\n", "data", "mine\n", "out/deep/x.bin", "mine\n")
	for _, way := range ways {
		testkit.Same(t, slices.Sorted(slices.Values(checkedOut(t, notMerged(t, k, path, way)).Files)),
			[]string{"data", "out"})
	}
	reads(t, repo, "data", "mine\n", "out/deep/x.bin", "mine\n")
	must(t, errors.Join(os.Remove(filepath.Join(repo, "data")), os.RemoveAll(filepath.Join(repo, "out"))))
	merged(t, k, path, WayMerge)
	clean(t, repo)
}

// A target that cannot be moved where it is checked out is refused, and nothing is changed.
func TestMergeRefusesWhatIsCheckedOut(t *testing.T) {
	for name, c := range map[string]struct {
		files   string   // "name text"
		steps   []string // of git
		refused []string // files
		in      string
	}{
		"changed":            {"a.txt mine", nil, []string{"a.txt"}, ""},
		"staged":             {"a.txt mine", []string{"add -A"}, []string{"a.txt"}, ""},
		"in the way":         {"new.txt mine", nil, []string{"new.txt"}, ""},
		"ignored in the way": {"new.txt mine .git/info/exclude new.txt", nil, []string{"new.txt"}, ""},
		"hidden by skip-worktree": {"a.txt mine", []string{"update-index --skip-worktree a.txt"},
			[]string{"a.txt"}, ""},
		"hidden by assume-unchanged": {"a.txt mine", []string{"update-index --assume-unchanged a.txt"},
			[]string{"a.txt"}, ""},
		"merge": {"", []string{"switch -q -c x", "commit -q --allow-empty -m x", "switch -q main",
			"merge -q --no-ff --no-commit x"}, nil, "merge"},
		"revert": {"lib/b.txt x", []string{"commit -qam x", "rm -q lib/b.txt", "commit -qm y", "revert HEAD~1"},
			nil, "revert"},
		"bisect": {"", []string{"bisect start"}, nil, "bisect"},
		"rebase": {"", []string{"branch x main", "commit -q --allow-empty -m c", "rebase --exec false x"}, nil,
			"rebase"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, repo, path := worked(t)
			write(t, repo, strings.Fields(c.files)...)
			for i, step := range c.steps {
				_, err := tryGit(repo, strings.Fields(step)...)
				testkit.Need(t, err == nil || i == len(c.steps)-1, "%v", err)
			}
			before := gitIn(t, repo, "rev-parse", "main", branchName)

			for _, way := range ways {
				refused := checkedOut(t, notMerged(t, k, path, way))
				testkit.Equal(t, refused.Operation, c.in)
				testkit.Same(t, refused.Files, c.refused)
				testkit.Contains(t, refused.Command, " refs/heads/"+branchName)
			}
			testkit.Equal(t, gitIn(t, repo, "rev-parse", "main", branchName)+refs(t, repo, "refs/deepwork"),
				before, "refs")
			clean(t, path)
		})
	}
}

// What is edited where the target is checked out stays as it is, unless the merge changes it.
func TestMergeKeepsEditsOfOtherFiles(t *testing.T) {
	for _, way := range ways {
		for _, staged := range []bool{false, true} {
			k, repo, path := worked(t)
			write(t, repo, "lib/b.txt", "mine\n", "loose.txt", "mine\n")
			if staged {
				gits(t, repo, "add lib/b.txt")
			}
			merged(t, k, path, way)
			reads(t, repo, "lib/b.txt", "mine\n", "loose.txt", "mine\n", "new.txt", read(t, path, "new.txt"))
			testkit.Equal(t, strings.TrimSpace(gitIn(t, repo, "diff", "--name-only", "HEAD")), "lib/b.txt")
		}
	}
}

// The repository's config does not decide what a merge does.
func TestTheRepositorysConfigDoesNotChangeAMerge(t *testing.T) {
	for _, way := range ways {
		k, repo, path := worked(t)
		gits(t, repo, "config pull.twohead ours")
		merged(t, k, path, way)
		reads(t, repo, "new.txt", read(t, path, "new.txt"))
	}

	repo := newRepo(t)
	commit(t, repo, "attributes", ".gitattributes", "own.txt merge=ours\n", "own.txt", "base\n")
	gits(t, repo, "config merge.ours.driver true")
	k, path := attemptIn(t, repo)
	commit(t, path, "theirs", "own.txt", "theirs\n")
	commit(t, repo, "own", "own.txt", "own\n")
	merged(t, k, path, WayMerge)
	reads(t, repo, "own.txt", "own\n")
}

func TestARefusedMergeCommitsNothing(t *testing.T) {
	t.Parallel()
	k, repo := newKeeper(t), newRepo(t)
	path := create(t, k, repo)
	write(t, path, "a.txt", "work\n")
	write(t, repo, "a.txt", "mine\n")
	l := landing(path, WayMerge)
	l.Commit = "Do it"
	before := gitIn(t, path, "rev-parse", "HEAD")
	checkedOut(t, testkit.Get(k.Merge(t.Context(), l)).Err())
	testkit.Equal(t, gitIn(t, path, "rev-parse", "HEAD"), before)
}

func TestAMergeByHandIsNoticed(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	base := gitIn(t, repo, "rev-parse", "main")
	status := func() Status {
		t.Helper()
		return testkit.Get(k.Status(t.Context(), path, base, "main")).Must(t)
	}
	testkit.True(t, !status().Merged, "before")
	gits(t, repo, "merge -q --no-ff "+branchName)
	testkit.True(t, status().Merged, "after")
	merged(t, k, path, WayMerge)
	testkit.Same(t, status().Changed, []string{"a.txt", "new.txt"})

	k = newKeeper(t)
	repo = newRepo(t)
	path = ""
	path = create(t, k, repo)
	commit(t, repo, "of others", "c.txt", "c\n")
	testkit.Get(k.Update(t.Context(), landing(path, WayMerge))).Must(t)
	testkit.True(t, !status().Merged, "without work of its own")
	commit(t, path, "given up", "d.txt", "d\n")
	gits(t, path, "reset -q --hard main")
	testkit.True(t, !status().Merged, "with work that was thrown away")
}

// Names that are not ASCII are shown as they are.
func TestNamesThatAreNotASCII(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	commit(t, path, "größer", "größe.txt", "1\n", "日本.bin", "\x00")
	diff, _, err := k.Diff(t.Context(), path, "", "main", nil, 1<<20)
	must(t, err)
	testkit.ContainsAll(t, diff, []string{"diff --git a/größe.txt b/größe.txt\n", "and b/日本.bin differ\n"})
	write(t, repo, "größe.txt", "mine\n")
	testkit.Same(t, checkedOut(t, notMerged(t, k, path, WayMerge)).Files, []string{"größe.txt"})
	must(t, os.Remove(filepath.Join(repo, "größe.txt")))
	write(t, path, "größe.txt", "2\n")
	refused, _ := errors.AsType[*DirtyError](notMerged(t, k, path, WayMerge))
	testkit.Same(t, refused, &DirtyError{Path: path, Files: []string{"größe.txt"}})
	commit(t, path, "marked", "größe.txt", "<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n")
	marked, _ := errors.AsType[*MarkersError](notMerged(t, k, path, WayMerge))
	testkit.Same(t, marked, &MarkersError{Path: path, Files: []string{"größe.txt"}})
}

// A squash or a rebase by hand is noticed, and none as long as a file of the attempt is missing or another.
func TestASquashByHandIsNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps  string // of git in the checkout, or after an @ in the worktree
		merged bool
	}{
		"squash":           {"merge -q --squash BRANCH;commit -q -m squash", true},
		"squash, and more": {"merge -q --squash BRANCH;commit -q -m squash;commit -q --allow-empty -m more", true},
		"cherry-pick":      {"cherry-pick -n BRANCH;commit -q -m picked", true},
		"rebase":           {"commit -q --allow-empty -m more;@rebase -q main;merge -q --ff-only BRANCH", true},
		"target merged in": {"commit -q --allow-empty -m more;@merge -q main -m up;merge -q --ff-only BRANCH", true},
		"others' commits":  {"commit -q --allow-empty -m more", false},
		"in part": {"merge -q --squash BRANCH;restore --staged --worktree --source=HEAD a.txt;commit -q -m part",
			false},
		"brought up to date": {"@reset -q --hard HEAD~1;commit -q --allow-empty -m more;@rebase -q main", false},
	} {
		k, repo, path := worked(t)
		for step := range strings.SplitSeq(c.steps, ";") {
			in := repo
			if rest, ok := strings.CutPrefix(step, "@"); ok {
				in, step = path, rest
			}
			gits(t, in, strings.ReplaceAll(step, "BRANCH", branchName))
		}
		st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
		testkit.True(t, st.ByHand == c.merged && st.Merged == c.merged, "%s: %+v", name, st)
	}
}

// The command that does the same by hand works for a branch with a name that a shell would read otherwise.
func TestMergeByHand(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gits(t, repo, "branch -m it's(1)&co")
	k, with := newKeeper(t), tree(repo)
	with.TargetBranch = "it's(1)&co"
	path := makes(t, k, with)[0].Path
	commit(t, path, "the work", "new.txt", "new\n")
	gits(t, repo, "worktree add -q --force ../also "+with.TargetBranch)
	_, err := k.Merge(t.Context(), Landing{Path: path, Target: with.TargetBranch, Way: WayRebase})
	follow(t, err, "or run: ", "\n")
	reads(t, repo, "new.txt", "new\n")
}

// A repository with files whose config says that it has none is not merged into: its files would stay behind.
func TestField26_AWorkTreeThatIsSaidToBeBare(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	gits(t, repo, "config core.bare true")
	testkit.Fails(t, notMerged(t, k, path, WayMerge), "config core.bare false")
	gits(t, repo, "config core.bare false")
	merged(t, k, path, WayMerge)
	clean(t, repo)
}

// Conflicts arise only in the attempt's worktree, where they can be resolved or undone.
func TestConflicts(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	commit(t, repo, "binary", "pic.bin", "a\x00b")
	k, path := attemptIn(t, repo)
	gits(t, path, "rm -q lib/b.txt")
	head := commit(t, path, "more", "pic.bin", "ours\x00")
	main := commit(t, repo, "meanwhile", "a.txt", "one\ntwo\nother\n", "pic.bin", "theirs\x00", "lib/b.txt",
		"changed\n", "added.txt", "added\n")
	want := []string{"a.txt", "lib/b.txt", "pic.bin"}
	update := func() *Landed { return testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t) }
	for _, way := range ways {
		conflict, ok := errors.AsType[*ConflictError](notMerged(t, k, path, way))
		testkit.Need(t, ok && (way == WayRebase || slices.Equal(conflict.Files, want)), "%s: %v", way, conflict)
	}
	testkit.Fails(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err(), "", "rebased")
	clean(t, repo, path)
	for range 2 {
		testkit.Same(t, update().Conflicts, want)
		testkit.ContainsAll(t, read(t, path, "a.txt"), []string{"<<<<<<< ", "main"})
		reads(t, path, "added.txt", "added\n")
		testkit.ContainsAll(t, gitIn(t, path, "status", "--porcelain", "--untracked-files=all"),
			[]string{"UU a.txt", "A  added.txt", " pic.bin"})
		testkit.FailsWith(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Err(), ErrUnfinished, "again")
		st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
		testkit.True(t, st.Merging && slices.Equal(st.Conflicts, want), "status: %+v", st)
		write(t, path, "a.txt", "half resolved\n", "loose", "loose\n")
		kept := testkit.Get(k.Abort(t.Context(), path, nil)).Must(t)
		holds(t, repo, kept.Ref, "a.txt", "half resolved\n")
		testkit.Equal(t, gitIn(t, path, "status", "--porcelain")+tip(path, "HEAD"), "?? loose"+head, "after abort")
		st = testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
		testkit.True(t, !st.Merging && st.Conflicts == nil, "status after abort: %+v", st)
	}
	testkit.FailsWith(t, testkit.Get(k.Abort(t.Context(), path, nil)).Err(), ErrNoMerge, "again")

	// Git would remove a repository in the place of a file.
	update()
	must(t, os.Remove(filepath.Join(path, "new.txt")))
	gitIn(t, path, "clone", "-q", repo, "new.txt")
	err := testkit.Get(k.Abort(t.Context(), path, nil)).Err()
	expectError(t, err, ErrNotKept, "was made there")
	testkit.True(t, isThere(filepath.Join(path, "new.txt", ".git")), "the repository is lost")

	follow(t, err, "discard that with: ", "\n")
	testkit.Works(t, testkit.Get(k.Abort(t.Context(), path, nil)).Err())

	// The agent resolves it with git, and the merge goes through.
	update()
	commit(t, path, "resolved", "a.txt", "both\n")
	testkit.Equal(t, gitIn(t, path, "show", "-s", "--format=%P"), head+" "+main, "parents")
	merged(t, k, path, WaySquash)
	reads(t, repo, "a.txt", "both\n")
	clean(t, repo)
	sound(t, repo, 1)
	// A conflict may be of no file: git does not know to which of two folders a new file belongs.
	commit(t, repo, "folder", "dir/1", "one\n", "dir/2", "two\n")
	update()
	commit(t, path, "in it", "dir/new", "x\n")
	gits(t, repo, "rm -q -r dir")
	commit(t, repo, "split", "one/1", "one\n", "two/2", "two\n")
	for _, way := range ways {
		testkit.Fails(t, notMerged(t, k, path, way), "there are conflicts in []", "%s", way)
	}
	testkit.ContainsAll(t, strings.Join(update().Conflicts, ","), []string{"directory rename split", " dir "})
	must(t, k.Commit(t.Context(), path, "as they are"))
	merged(t, k, path, WayMerge)
	reads(t, repo, "dir/new", "x\n", "one/1", "one\n")
}

func TestUpdateAndRebase(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	gits(t, repo, "mv a.txt renamed.txt")
	main := commit(t, repo, "rename")
	testkit.Same(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t).Conflicts, nil)
	reads(t, path, "renamed.txt", "one\ntwo\nthree\n")
	testkit.True(t, !isThere(filepath.Join(path, "a.txt")), "the file has two names")
	clean(t, path)
	got := testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Must(t)
	testkit.Equal(t, tip(path, "HEAD^"), main)
	reads(t, path, "renamed.txt", "one\ntwo\nthree\n")
	clean(t, path)
	testkit.Equal(t, testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Must(t).Commit, got.Commit)
	write(t, path, "a.txt", "not committed\n")
	gits(t, path, "add a.txt")
	dirty, ok := errors.AsType[*DirtyError](testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Err())
	testkit.True(t, ok && slices.Equal(dirty.Files, []string{"a.txt"}), "changes were rebased: %v", dirty)
	gits(t, path, "rm -q --cached a.txt")
	testkit.Same(t, merged(t, k, path, WayRebase).Untracked, []string{"a.txt"})
	gits(t, path, "checkout -q --detach")
	testkit.True(t, merged(t, k, path, WayMerge).Adopted != "", "a detached HEAD is not adopted")

	inUse := landing(path, WayMerge)
	inUse.InUse = func() bool { return true }
	testkit.FailsWith(t, testkit.Get(k.Merge(t.Context(), inUse)).Err(), ErrInUse)
}

// A target that is moved between the merge and its last step is not overwritten.
func TestMergeOfATargetThatMoves(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		k, repo, path := worked(t)
		gits(t, repo, "checkout -q -b elsewhere")
		head, moved := tip(path, "HEAD"), ""
		k.atPoint = func(point string) {
			if point == "made the commit" && moved == "" {
				moved = gitIn(t, repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "moved")
				gits(t, repo, "update-ref refs/heads/main "+moved)
			}
		}
		testkit.FailsWith(t, notMerged(t, k, path, way), ErrMoved)
		testkit.Equal(t, tip(repo, "main")+tip(path, "HEAD")+refs(t, repo, "refs/deepwork"), moved+head, "%s", way)
		clean(t, repo, path)
		merged(t, k, path, way)
		clean(t, repo, path)
	}
}

// A merge that cannot be recorded is not made: a later call would find nothing to do, and not know that it was merged.
func TestMergeThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		k, repo, path := worked(t)
		full, before := filepath.Join(k.journal, attemptID+".new"), tip(repo, "main")+tip(path, "HEAD")
		k.atPoint = func(string) { write(t, full, "x", "") }
		testkit.Fails(t, notMerged(t, k, path, way), "journal")
		testkit.Equal(t, tip(repo, "main")+tip(path, "HEAD"), before, "%s", way)
		k.atPoint = func(string) {}
		must(t, os.RemoveAll(full))
		merged(t, k, path, way)
		testkit.True(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Merged,
			"%s: it is not known to be merged", way)
	}
}

// Where the user switches branches during a merge, the target is moved as it is checked out then, and no other branch.
func TestMergeWhileTheUserSwitches(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		for _, to := range []string{"main", "feature"} {
			k, repo, path := worked(t)
			before := tip(repo, "main")
			gits(t, repo, "branch feature", "switch -q "+map[string]string{"main": "feature", "feature": "main"}[to])
			k.atPoint = func(string) { gits(t, repo, "switch -q "+to) }
			testkit.Equal(t, merged(t, k, path, way).Commit+tip(repo, "feature"), tip(repo, "main")+before,
				"%s to %s: main and the other branch", way, to)
			clean(t, repo, path)
		}
	}
}

// The user's checkout is found where git does not name it for the target: in a submodule, apart from its git
// folder, or on a branch of which the target is another name; and by a path of two lines.
func TestMergeWhereGitDoesNotKnowTheCheckout(t *testing.T) {
	t.Parallel()
	apart := newRepo(t)
	around := newRepo(t)
	renamed := newRepo(t)
	gits(t, apart, "init -q --separate-git-dir "+filepath.Join(t.TempDir(), "git"))
	gits(t, around, "submodule --quiet add "+newRepo(t)+" sub", "-C "+renamed+" branch -m master",
		"-C "+renamed+" symbolic-ref refs/heads/main refs/heads/master")
	lines := newRepo(t)
	if os.Rename(lines, lines+"\n2") == nil { // not on Windows
		lines += "\n2"
	}
	for _, repo := range []string{apart, filepath.Join(around, "sub"), renamed, lines} {
		k, path := attemptIn(t, repo)
		write(t, repo, "a.txt", "mine\n")
		refused := checkedOut(t, notMerged(t, k, path, WayMerge))
		testkit.Same(t, append(refused.Files, refused.Path), []string{"a.txt", canonical(repo)})
		gits(t, repo, "restore a.txt")
		merged(t, k, path, WayMerge)
		clean(t, repo)
		testkit.Equal(t, read(t, repo, "new.txt")+remove(t, k).Ref, "new\n", "merged and kept")
	}
}

// A target in two worktrees is refused: only one of them could be moved. Where git cannot move the target after it has
// changed the files of its checkout, these are taken back. One that was deleted is neither made again nor replaced.
func TestMergeIntoTargetsThatCannotBeMoved(t *testing.T) {
	t.Parallel()
	k, repo, path := worked(t)
	second, log := filepath.Join(t.TempDir(), "second"), filepath.Join(repo, ".git", "logs", "refs", "heads", "main")
	gits(t, repo, "worktree add -q --force "+second+" main")
	err := notMerged(t, k, path, WayMerge)
	testkit.Equal(t, checkedOut(t, err).Also, canonical(second))
	testkit.Fails(t, err, "switch --detach")
	clean(t, repo, second, path)
	commits, before := landing(path, WayMerge), tip(path, "HEAD")
	commits.Commit = "all"
	write(t, path, "loose", "x\n")
	checkedOut(t, testkit.Get(k.Merge(t.Context(), commits)).Err())
	testkit.Equal(t, tip(path, "HEAD"), before, "it was refused, and has committed")
	must(t, os.Remove(filepath.Join(path, "loose")))
	gits(t, second, "switch -q --detach") // as it was told
	must(t, os.Remove(log))
	write(t, log, "x", "")
	for _, way := range ways {
		testkit.Fails(t, notMerged(t, k, path, way), "logs/refs/heads/main")
		clean(t, repo, path)
	}
	must(t, os.RemoveAll(log))
	merged(t, k, path, WayMerge)
	reads(t, repo, "new.txt", "new\n")
	clean(t, repo, path)
	gits(t, repo, "checkout -q -b elsewhere", "branch -q -D main")
	for name, call := range map[string]func(context.Context, Landing) (*Landed, error){
		"merge":  k.Merge,
		"rebase": k.Rebase,
		"update": k.Update,
	} {
		testkit.FailsWith(t, testkit.Get(call(t.Context(), landing(path, WayMerge))).Err(), ErrNoBranch, "%s", name)
	}
	testkit.Equal(t, tip(repo, "refs/heads/main"), "", "main exists again")
	clean(t, repo, path)
}

func TestPush(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	remote := remoteOf(t, repo)
	k, path := attemptIn(t, repo)
	push := func(force bool) error { return testkit.Get(k.Push(t.Context(), path, "origin", force)).Err() }
	must(t, push(false))
	testkit.Equal(t, tip(remote, branchName)+tip(repo, "refs/remotes/origin/"+branchName),
		tip(path, "HEAD")+tip(path, "HEAD"), "pushed")

	gits(t, path, "commit -q --amend -m again")
	expectError(t, push(false), ErrRejected, "non-fast-forward")
	must(t, push(true))
	testkit.Equal(t, tip(remote, branchName), tip(path, "HEAD"), "pushed")

	// Somebody else pushes to it.
	other := gitIn(t, remote, "commit-tree", "main^{tree}", "-p", branchName, "-m", "other")
	gits(t, path, "-C "+remote+" update-ref refs/heads/"+branchName+" "+other, "commit -q --amend -m third")

	// git has not seen that, or an editor has it fetch now and then
	for _, known := range []string{"status", "fetch -q origin"} {
		gitIn(t, repo, strings.Fields(known)...)
		testkit.FailsWith(t, push(true), ErrRejected)
		testkit.Equal(t, tip(remote, branchName), other, "overwritten after "+known)
	}
	hook := filepath.Join(remote, "hooks", "pre-receive")
	executable(t, hook, "#!/bin/sh\necho we are closed >&2\nexit 1\n")
	gits(t, remote, "update-ref -d refs/heads/"+branchName)
	expectError(t, push(false), ErrRejected, "we are closed")
	for _, name := range []string{"nowhere", "--all", remote, ""} {
		testkit.Fails(t, testkit.Get(k.Push(t.Context(), path, name, false)).Err(), "", "pushed to %q", name)
	}

	mark := filepath.Join(t.TempDir(), "mark")
	gitIn(t, repo, "config", "remote.origin.url", "ext::touch "+mark)
	gitIn(t, repo, "config", "remote.origin.receivepack", "touch "+mark+"; git-receive-pack")
	gitIn(t, repo, "config", "remote.file://"+filepath.ToSlash(remote)+".uploadpack", "touch "+mark+"; git-upload-pack")
	gits(t, repo, "config protocol.ext.allow always", "config push.negotiate true")
	testkit.Fails(t, push(false), "", "a URL ran a program")

	must(t, os.Remove(hook))
	gits(t, repo, "config remote.origin.url file://"+filepath.ToSlash(remote))
	testkit.Works(t, push(false))
	testkit.True(t, !isThere(mark), "a program of the repository ran")

	// One that was deleted there is made again. A clone with --depth follows no other branch: what was pushed
	// is replaced.
	gits(t, repo, "-C "+remote+" update-ref -d refs/heads/"+branchName,
		"config remote.origin.fetch +refs/heads/main:refs/remotes/origin/main")
	for _, message := range []string{"fourth", "fifth"} {
		gits(t, path, "commit -q --amend -m "+message)
		testkit.Works(t, push(true))
	}
	gits(t, remote, "update-ref refs/heads/"+branchName+" "+other)
	testkit.FailsWith(t, push(true), ErrRejected)
}
