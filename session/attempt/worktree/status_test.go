package worktree

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/git"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	base := tip(repo, "HEAD")
	check := func(target string, want Status) {
		t.Helper()
		got := testkit.Get(k.Status(t.Context(), path, base, target)).Must(t)
		testkit.True(t, got.Exists, "got %+v, want %+v", got, want)
		testkit.Equal(t, got.Ahead, want.Ahead, "got %+v, want %+v", got, want)
		testkit.Equal(t, got.Behind, want.Behind, "got %+v, want %+v", got, want)
		testkit.True(t, slices.Equal(got.Changed, want.Changed), "got %+v, want %+v", got, want)
	}
	check("main", Status{})
	commit(t, path, "one", "committed", "1", "lib/b.txt", "changed")
	write(t, path, "a.txt", "changed", "with space/ü 日本", "2", "x.log", "ignored", "staged", "3")
	gits(t, path, "add staged")
	want := []string{"a.txt", "committed", "lib/b.txt", "staged", "with space/ü 日本"}
	if runtime.GOOS != "windows" {
		write(t, path, "line\nbreak", "4")
		want = append(want, "line\nbreak")
	}
	write(t, path, ".git-not", "")
	must(t, errors.Join(os.Remove(filepath.Join(path, ".gitignore")), os.Remove(filepath.Join(path, "x.log"))))
	want = append(want, ".git-not", ".gitignore")
	slices.Sort(want)
	check("main", Status{Ahead: 1, Changed: want})
	commit(t, repo, "upstream", "upstream", "u")
	gits(t, repo, "commit -q --allow-empty -m empty")
	check("main", Status{Ahead: 1, Behind: 2, Changed: want}) // what others did is not counted
	check("vanished", Status{Ahead: 1, Changed: want})
	check("", Status{Ahead: 1, Changed: want})
	gits(t, path, "reset -q -- staged", "merge -q main -m merge")
	check("main", Status{Ahead: 2, Changed: want})
	testkit.True(t, !testkit.Get(k.Status(t.Context(), path+"-none", base, "main")).Must(t).Exists,
		"there is no folder")
	_, _, err := k.Diff(t.Context(), path+"-none", base, "main", nil, 0)
	testkit.FailsWith(t, err, ErrNoWorktree, "there is no folder")
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), t.TempDir(), base, "main")).Err(), ErrNoWorktree,
		"of a plain folder")
	testkit.Fails(t, testkit.Get(k.Status(t.Context(), path, "--all", "vanished")).Err(), "",
		"a base that is no commit was taken")
}

func TestDiff(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	gits(t, repo, "config diff.noprefix true", "config diff.external false", "config color.ui always",
		"config diff.mnemonicPrefix true")
	commit(t, path, "one", "committed.txt", "in a commit\n")
	write(t, path, "a.txt", "one\nTWO\n", "untracked *.txt", "new\n", "other.txt", "other\n", "empty", "")
	write(t, path, "x.log", "ignored\n", "binary", "\x00\x01\x02")
	commit(t, repo, "upstream", "upstream", "u\n")
	indexAt := gitIn(t, path, "rev-parse", "--git-path", "index")
	index := read(t, indexAt)
	diff := func(most int, paths ...string) (string, bool) {
		t.Helper()
		text, truncated, err := k.Diff(t.Context(), path, "", "main", paths, most)
		must(t, err)
		return text, truncated
	}
	only := func(paths ...string) string {
		text, _ := diff(0, paths...)
		return text
	}
	text, truncated := diff(0)
	testkit.True(t, !truncated, "it is cut")
	testkit.ContainsAll(t, text,
		[]string{"diff --git a/a.txt b/a.txt\n", "-two\n+TWO\n", "+in a commit\n", "+new\n", "new file mode 100644",
			"b/empty\n", "Binary files /dev/null and b/binary differ\n"})
	for _, not := range []string{"ignored", "upstream", "\x1b"} {
		testkit.True(t, !strings.Contains(text, not), "the diff has %q", not)
	}
	testkit.True(t, read(t, indexAt) == index && !isThere(indexAt+".lock"), "the worktree's index was touched")

	got := only("untracked *.txt")
	testkit.True(t, strings.Contains(got, "+new") && !strings.Contains(got, "other"),
		"a path was taken for a pattern: %s", got)
	testkit.Equal(t, only("*.txt"), "", "a path was taken for a pattern")
	got = only("other.txt", "./lib/")
	testkit.True(t, strings.Contains(got, "+other") && !strings.Contains(got, "TWO"), "of two paths: %s", got)
	testkit.Equal(t, only("."), text, "of . there is less")

	for n := 1; n < len(text); n += 7 {
		part, truncated := diff(n)
		testkit.Need(t, truncated, "at %d bytes: %q, %v", n, part, truncated)
		testkit.Need(t, len(part) <= n, "at %d bytes: %q, %v", n, part, truncated)
		testkit.Need(t, strings.HasPrefix(text, part), "at %d bytes: %q, %v", n, part, truncated)
		testkit.Need(t, (!strings.Contains(text[:n], "\n") || strings.HasSuffix(part, "\n")), "at %d bytes: %q, %v", n,
			part, truncated)
		n *= 2
	}
	part, truncated := diff(len(text))
	testkit.True(t, !truncated && part == text, "at its very size it is cut")

	for in, want := range map[string]string{
		"one\ntwo": "one\n",
		"abc":      "abc",
		"日本"[:5]:   "日",
		"":         "",
		"ü":        "ü",
		"\n":       "\n",
	} {
		testkit.Equal(t, cut([]byte(in)), want, "cut(%q)", in)
	}
}

// expectChanged checks the files that an attempt is said to have changed, which are the same in its diff.
func expectChanged(t *testing.T, k *Keeper, path, target string, want ...string) {
	t.Helper()
	base := testkit.Get(k.load(attemptID)).Must(t).Trees[0].Base
	slices.Sort(want)
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, base, target)).Must(t).Changed, want, "changed")
	diff, _, err := k.Diff(t.Context(), path, base, target, nil, 1<<28)
	must(t, err)
	var files []string
	for line := range strings.Lines(diff) {
		if _, name, ok := strings.Cut(line, " b/"); ok && strings.HasPrefix(line, "diff ") {
			files = append(files, strings.TrimSpace(name))
		}
	}
	slices.Sort(files)
	testkit.Same(t, files, want, "in the diff")
}

// What an attempt has changed is its own work, however often it is merged, while others work on the target, too.
func TestDiffAfterMerges(t *testing.T) {
	for _, way := range ways {
		for _, others := range []bool{false, true} {
			t.Run(string(way)+map[bool]string{true: ", others too"}[others], func(t *testing.T) {
				t.Parallel()
				k, repo, path := worked(t)
				other := func(name string) {
					if others {
						commit(t, repo, name, name, "theirs\n")
					}
				}

				// After a squash or a rebase on what others have changed, earlier merges are not shown.
				after := func(earlier string, names ...string) []string {
					if way == WayMerge || !others {
						names = append(strings.Fields(earlier), names...)
					}
					return names
				}
				other("x.txt")
				expectChanged(t, k, path, "main", "a.txt", "new.txt")
				merged(t, k, path, way)
				expectChanged(t, k, path, "main", "a.txt", "new.txt")
				other("y.txt")
				expectChanged(t, k, path, "main", "a.txt", "new.txt")
				write(t, path, "more.txt", "more\n")
				expectChanged(t, k, path, "main", "a.txt", "more.txt", "new.txt")
				commit(t, path, "more")
				merged(t, k, path, way)
				expectChanged(t, k, path, "main", after("a.txt new.txt", "more.txt")...)
				other("z.txt")
				gits(t, repo, "gc -q --prune=now")
				expectChanged(t, k, path, "main", after("a.txt new.txt", "more.txt")...)
				commit(t, path, "third", "third.txt", "third\n")
				other("zz.txt")
				testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Must(t)
				clean(t, repo, path)
				if way == WayMerge || others {
					expectChanged(t, k, path, "main", "third.txt")
				} else {
					expectChanged(t, k, path, "main", "a.txt", "more.txt", "new.txt", "third.txt")
				}

				// The agent takes over the target itself: the work that both have is not shown.
				commit(t, repo, "theirs", "w.txt", "theirs\n")
				gits(t, path, "merge -q main")
				write(t, path, "fourth.txt", "fourth\n")
				expectChanged(t, k, path, "main", "fourth.txt", "third.txt")
			})
		}
	}
}

// Compared with another target, the attempt has not made what its first target has, and does not take it along.
func TestDiffAndRebaseToAnotherTarget(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gitIn(t, repo, "branch", "release")
	commit(t, repo, "theirs", "x.txt", "theirs\n")
	k, path := attemptIn(t, repo)
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
	gitIn(t, repo, "checkout", "-q", "release")
	release, l := commit(t, repo, "released", "r.txt", "released\n"), landing(path, WayRebase)
	l.Target = "release"
	testkit.Get(k.Rebase(t.Context(), l)).Must(t)
	testkit.Equal(t, gitIn(t, path, "log", "--format=%s", release+"..HEAD"), "the work", "rebased")
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
	testkit.Get(k.Merge(t.Context(), l)).Must(t)
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
}

// Commit commits what agents have left, as the user, without copies that git does not ignore; it ends a merge
// whose conflicts are resolved, and refuses one with conflicts.
func TestCommitWhatIsLeft(t *testing.T) {
	asUser(t, "[commit]\n\tcleanup = strip\n")
	repo, k := newRepo(t), newKeeper(t)
	write(t, repo, "secret", "s\n", "local/s/s", "s\n")
	path := makes(t, k, tree(repo, "secret", "local/"))[0].Path
	before := tip(path, "HEAD")
	must(t, k.Commit(t.Context(), path, "nothing"))
	testkit.Equal(t, tip(path, "HEAD"), before, "a commit of nothing")
	write(t, path, "a.txt", "theirs\n", "new dir/new.txt", "n\n")
	testkit.Must(t, k.Commit(t.Context(), path, "#1 left"))
	testkit.Equal(t, gitIn(t, path, "show", "--format=%an %s", "--name-only")+gitIn(t, path, "status", "--porcelain"),
		"Una User #1 left\n\na.txt\nnew dir/new.txt?? local/\n?? secret")
	for left, made := range [][]string{{}, {"local/s/new"}} { // an agent's own
		write(t, path, slices.Concat(made, made)...)
		testkit.Equal(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Loose, left,
			"files that are left")
	}
	testkit.Must(t, os.Remove(filepath.Join(path, "local", "s", "new")))
	for _, inside := range []string{filepath.Join(path, "vendor", "theirs"), filepath.Join(path, "a.txt")} {
		testkit.Must(t, errors.Join(os.RemoveAll(inside), os.CopyFS(inside, os.DirFS(newRepo(t)))))
		testkit.Fails(t, k.Commit(t.Context(), path, "left"), inside+" is a git repository of its own")
		testkit.Must(t, os.RemoveAll(inside))
	}
	gits(t, path, "restore a.txt")
	// else they are committed there
	testkit.Must(t, errors.Join(os.Remove(filepath.Join(repo, "secret")), os.RemoveAll(filepath.Join(repo, "local"))))
	commit(t, repo, "meanwhile", "a.txt", "ours\n")
	write(t, repo, "local/s/s", "s\n")
	testkit.Equal(t, len(testkit.Get(k.Update(t.Context(), landing(path, WayMerge))).Must(t).Conflicts), 1)
	testkit.FailsWith(t, k.Commit(t.Context(), path, "left"), ErrUnfinished)
	gits(t, path, "checkout -q --ours a.txt", "add a.txt") // which changes nothing
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	testkit.Equal(t, len(merged(t, k, path, WayMerge).Untracked), 0, "a copy is said to be left")
	holds(t, repo, "main", "a.txt", "theirs\n")
}

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
	gits(t, repo, "branch other refs/heads/main", "branch feature/x refs/heads/main", "checkout -q --detach")
	testkit.Same(t, testkit.Get(Branches(t.Context(), repo)).Must(t), []string{"feature/x", "main", "other"},
		"detached")

	for _, branch := range []string{"other", "main"} {
		gits(t, repo, "switch -q "+branch)
		testkit.Equal(t, testkit.Get(CurrentBranch(t.Context(), repo)).Must(t), branch, "the current branch")
	}
	testkit.Same(t, testkit.Get(Branches(t.Context(), filepath.Join(repo, "lib"))).Must(t),
		[]string{"main", "feature/x", "other"}, "the branches")

	for _, way := range ways {
		k, path := attemptIn(t, repo)
		testkit.Equal(t, tip(path, "HEAD~1"), tip(repo, "refs/heads/main"), "%s: it begins at", way)
		commit(t, repo, "meanwhile", "lib/b.txt", string(way))
		st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
		testkit.Equal(t, st.Ahead, 1)
		testkit.Equal(t, st.Behind, 1)
		testkit.Equal(t, st.Elsewhere, "")

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
		testkit.Equal(t, remove(t, k).Ref+tip(repo, "refs/heads/"+branchName)+tip(repo, "refs/tags/main"),
			tip(repo, "refs/heads/other~1"), "%s: what stays of a merged branch, and the tag", way)

		gits(t, repo, "rm -q new.txt", "push -q main :refs/heads/"+branchName)
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

// The folder of an attempt is short, has the name of its branch, and belongs to it alone; other attempts with
// a name that begins alike have other items.
func TestNameFor(t *testing.T) {
	k, repo := newKeeper(t), newRepo(t)
	for branch, want := range map[string]string{
		"deepwork/fix-the-login-1a2b":  "fix-the-login-1a2b",
		"deepwork/fix-the-logins-1a2b": "fix-the-login-1a2b",
		"a.b-task-1a2b":                "b-task-1a2b",
		"deepwork/件名-1a2b":             "1a2b",
		"deepwork/prüfe-das-1a2b":      "das-1a2b",
	} {
		testkit.Equal(t, NameFor(k.dir, branch, 18), want)
	}
	for most, want := range map[int]string{9: "fix-1a2b", 8: "fix-1a2b", 5: "1a2b", 0: "1a2b"} {
		testkit.Equal(t, NameFor(k.dir, "deepwork/fix-the-login-1a2b", most), want, "%d", most)
	}

	create := func(name, id, repo string) (string, error) {
		one := tree(repo)
		one.Attempt = id
		made, err := k.Create(t.Context(), name, "deepwork/"+name, []Tree{one}, nil)
		return append(made, Made{})[0].Path, err
	}
	path := testkit.Get(create("fix-1a2b", "one", repo)).Must(t)
	testkit.Same(t, []string{NameFor(k.dir, "deepwork/fix-1a2b", 18), NameOf(path), Owner(k.dir, "fix-1a2b"),
		Owner(k.dir, "../fix-1a2b")}, []string{"fix-1a2b-2", "fix-1a2b", "one", ""})
	testkit.Get(create("fix-1a2b-port", "one", repo)).Must(t)
	testkit.Get(create("fix-1a2b-3c4d", "another", repo)).Must(t)
	testkit.Same(t, testkit.Get(k.Items("fix-1a2b", "one")).Must(t), []string{"fix-1a2b-port"})
	testkit.Works(t, k.Check("fix-1a2b", "one", []string{path}))
	testkit.FailsWith(t, k.Check("fix-1a2b", "another", []string{path}), ErrNotOurs)
	testkit.Fails(t, testkit.Get(create("fix-1a2b", "another", newRepo(t))).Err(), "belongs to attempt one")
	write(t, path, "new.txt", "n\n")
	kept, _, err := k.Remove(t.Context(), "fix-1a2b", false, nil)
	must(t, err)
	testkit.Same(t, []string{kept[0].Ref, testkit.Get(k.Rescues(t.Context(), "one", []string{repo})).Must(t)[0].Path},
		[]string{rescueRefs + "one", path})
}

// old makes a commit on main that is older than every attempt, on the branch develop.
func old(t *testing.T, repo string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "commit")
	const who = " Una <una@example.com> 1000000000 +0000\n"
	write(t, filepath.Dir(file), "commit", "tree "+gitIn(t, repo, "rev-parse", "main^{tree}")+"\nparent "+
		gitIn(t, repo, "rev-parse", "main")+"\nauthor"+who+"committer"+who+"\nold\n")
	gitIn(t, repo, "branch", "develop", gitIn(t, repo, "hash-object", "-t", "commit", "-w", file))
}

// follow runs the command in a message that begins after a text, as a person does.
func follow(t *testing.T, err error, after, until string) {
	t.Helper()
	_, command, found := strings.Cut(err.Error(), after)
	command, _, _ = strings.Cut(command, until)
	run := exec.Command("sh", "-c", command)
	run.Env = git.Environ()
	out, err := run.CombinedOutput()
	testkit.True(t, found && err == nil, "%q: %v\n%s", command, err, out)
}

// Commits that an agent made elsewhere than on the attempt's branch are merged and pushed, or refused with a
// command that helps.
func TestField04_CommitsElsewhere(t *testing.T) {
	t.Parallel()
	const empty = "commit -q --allow-empty -m "
	for name, c := range map[string]struct {
		steps   []string // git commands in the worktree, or after an @ in the user's checkout
		refused string   // "" means that the commits are adopted
		follow  string   // what is before the command that helps
	}{
		"a branch of its own":  {steps: []string{"checkout -q -b mine"}},
		"a detached HEAD":      {steps: []string{"checkout -q --detach"}},
		"a branch on a branch": {steps: []string{"checkout -q -b one", empty + "one", "checkout -q -b two"}},
		"a renamed branch":     {steps: []string{"branch -m mine"}},
		"a branch like a tag":  {steps: []string{"tag mine", "checkout -q -b mine"}},
		"with the target in it": {steps: []string{"@merge -q --ff-only develop", "@" + empty + "new",
			"checkout -q -b mine", "merge -q main"}},
		"commits on both": {
			steps:   []string{empty + "own", "checkout -q -b mine main"},
			refused: "lacks commits",
			follow:  "This adds them: ",
		},
		"a branch of the user": {
			steps:   []string{"checkout -q develop"},
			refused: "from before the attempt",
			follow:  "to the attempt's branch: ",
		},
		"its branch used elsewhere": {
			steps:   []string{"checkout -q -b mine", "@worktree add -q ../other " + branchName},
			refused: "is checked out in",
			follow:  "This frees it: ",
		},
		"a branch of its own past": {
			steps:   []string{"checkout -q --orphan mine"},
			refused: "lacks commits",
			follow:  "This adds them: ",
		},
		"a bisect": {
			steps:   []string{empty + "one", empty + "two", empty + "three", "bisect start HEAD main"},
			refused: "bisect reset",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, repo := newKeeper(t), newRepo(t)
			remote := remoteOf(t, repo)
			old(t, repo)
			path := create(t, k, repo)
			for _, step := range c.steps {
				at, users := strings.CutPrefix(step, "@")
				gits(t, map[bool]string{true: repo, false: path}[users], at)
			}
			if name != "a bisect" {
				commit(t, path, "the work", "new.txt", "")
			}
			before := digest(t, repo)
			branch := tip(repo, branchName)
			head := tip(path, "HEAD")
			st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
			testkit.True(t, st.Elsewhere != "", "the status is %+v", st)
			pushed, err := k.Push(t.Context(), path, "origin", false)
			if c.refused == "" {
				testkit.Need(t, err == nil && pushed.Adopted == st.Elsewhere, "pushed %+v, %v", pushed, err)
				testkit.Same(t, []string{tip(remote, branchName), tip(path, "HEAD")}, []string{head, head}, "pushed")
				testkit.True(t, name != "a branch of its own" || tip(repo, "mine") == head,
					"the agent's branch is gone")

				clean(t, path)
				merged(t, k, path, WayMerge)
				holds(t, repo, "main", "new.txt", "")
				return
			}
			testkit.Fails(t, err, c.refused)
			err = notMerged(t, k, path, WayMerge)
			testkit.Fails(t, err, c.refused)
			testkit.Same(t, []string{tip(repo, branchName), tip(path, "HEAD"), tip(remote, branchName)},
				[]string{branch, head, ""}, "after a refused call")
			testkit.Equal(t, digest(t, repo), before, "the user's checkout was touched")

			if c.follow != "" {
				follow(t, err, c.follow, ";")
				testkit.Get(k.Push(t.Context(), path, "origin", false)).Must(t)
				testkit.Equal(t, tip(remote, branchName), tip(path, "HEAD"), "after the command")
				gits(t, path, "merge-base --is-ancestor "+head+" "+branchName,
					"merge-base --is-ancestor "+cmp.Or(branch, head)+" "+branchName)
			}
		})
	}
}

// What a worktree lacks is brought back by the command in the refusal.
func TestField04_LostWorktrees(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ step, refused, follow string }{
		"moved": {"worktree move PATH PATH-elsewhere", "no git worktree in this folder",
			"this moves it back: "},
		"removed": {"worktree remove PATH", "no git worktree in this folder", "was not committed: "},
		"removed and checked out": {"worktree remove PATH;checkout -q " + branchName,
			"no git worktree in this folder", "was not committed: "},
		"on a branch with no commit": {"-C PATH checkout -q --orphan none", "has no commit",
			"to the attempt's branch: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, repo, path := worked(t)
			head := tip(path, "HEAD")
			gits(t, repo, strings.Split(strings.ReplaceAll(c.step, "PATH", path), ";")...)
			_, err := k.Push(t.Context(), path, "origin", false)
			testkit.Fails(t, err, c.refused)

			follow(t, err, c.follow, "\n")
			testkit.Equal(t, tip(path, "HEAD"), head, "it is at")
			testkit.Works(t, k.Check(attemptID, attemptID, []string{path}))
			clean(t, path)
		})
	}
}

// A commit of a submodule that only the worktree has is named before it is merged or pushed, with the
// command that publishes it. A merge leaves the submodule's files alone.
func TestField04_Submodules(t *testing.T) {
	t.Parallel()
	sub, repo := newRepo(t), newRepo(t)
	gits(t, sub, "config receive.denyCurrentBranch ignore")
	gits(t, repo, "submodule --quiet add "+sub+" sub")
	commit(t, repo, "submodule")
	remote := remoteOf(t, repo)
	k, path := attemptIn(t, repo)
	id := commit(t, sub, "newer", "a.txt", "newer\n") // which the worktree does not check out
	gits(t, path, "update-index --cacheinfo 160000,"+id+",sub", "commit -q -m newer")
	main := merged(t, k, path, WayMerge).Commit
	testkit.Equal(t, tip(repo, "main:sub")+read(t, repo, "sub/a.txt"), id+"one\ntwo\n")
	gits(t, repo, "submodule --quiet update", "-C "+path+" submodule --quiet update --init")
	id = commit(t, filepath.Join(path, "sub"), "newest", "a.txt", "newest\n")
	push := func() error { return testkit.Get(k.Push(t.Context(), path, "origin", false)).Err() }
	for _, err := range []error{push(), notMerged(t, k, path, WayMerge)} {
		dirty, ok := errors.AsType[*DirtyError](err)
		testkit.Need(t, ok && dirty.Files[0] == "sub", "a commit that only the submodule has: %v", err)
	}
	commit(t, path, "newer submodule")
	expectError(t, push(), ErrUnpublished, "push origin "+id)
	err := notMerged(t, k, path, WayMerge)
	expectError(t, err, ErrUnpublished, "push origin "+id)
	testkit.Equal(t, tip(remote, branchName)+tip(repo, "main"), main, "it was pushed or merged")

	follow(t, err, "This publishes it: ", "\n")
	must(t, push())
	merged(t, k, path, WayMerge)
	testkit.Same(t, []string{tip(remote, branchName+":sub"), tip(repo, "main:sub")}, []string{id, id},
		"after the command")

	old(t, sub)
	in := "-C " + filepath.Join(path, "sub")
	gits(t, sub, "tag v1 develop", "branch -q -D develop", in+" fetch -q --tags", in+" checkout -q v1")
	commit(t, path, "as released")
	must(t, push())
}

func TestBranchForIsALegalRef(t *testing.T) {
	t.Parallel()
	legal, seen := regexp.MustCompile(`^deepwork/[\pL\pN](-?[\pL\pN\pM]){0,31}-[0-9a-f]{4}$`), map[string]bool{}
	for title, slug := range map[string]string{
		"Fix the login page":        "fix-the-login-page",
		"":                          "task",
		"日本語の 件名":                   "日本語の-件名",
		"Исправить Ёлку!":           "исправить-ёлку",
		"हिन्दी 🎉":                  "हिन्दी",
		"🎉":                         "task",
		"...--..":                   "task",
		"a..b~^:?*[\\ @{c":          "a-b-c",
		"refs/heads/x.lock":         "refs-heads-x-lock",
		strings.Repeat("word ", 30): "word-word-word-word-word-word-wo",
		strings.Repeat("x", 100):    strings.Repeat("x", 32),
		"Ärger mit Öl":              "ärger-mit-öl",
		"HEAD":                      "head",
	} {
		b := BranchFor("deepwork/", title)
		testkit.True(t, legal.MatchString(b) && strings.HasPrefix(b, "deepwork/"+slug+"-"),
			"BranchFor(%q) = %q", title, b)
		gitIn(t, ".", "check-ref-format", "--branch", b)
	}
	for range 50 {
		seen[BranchFor("deepwork/", "same")] = true
	}
	testkit.True(t, len(seen) >= 25, "the same title gives the same branch again and again")
}

// Files that git shows as modified right after a checkout are no changes, neither of the user nor of the agent: work is
// committed and merged beside them and without them, and none is kept for them.
func TestFilesModifiedByTheirCheckout(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		repo := newRepo(t)
		commit(t, repo, "files", "w.bat", "x\r\ny\r\n")
		write(t, repo, ".gitattributes", "*.bat text eol=crlf\n")
		gits(t, repo, "add .gitattributes", "commit -q -m attributes")
		testkit.Age(filepath.Join(repo, "w.bat")) // as after a checkout in the second of the index
		testkit.Need(t, gitIn(t, repo, "status", "--porcelain") == " M w.bat", "git does not show it as modified")
		stored := gitIn(t, repo, "rev-parse", "main:w.bat")

		k := newKeeper(t)
		path := create(t, k, repo)
		testkit.Age(filepath.Join(path, "w.bat"))
		st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
		testkit.True(t, st.Loose == 0 && len(st.Changed) == 0, "%s: %+v", way, st)

		write(t, path, "more.txt", "more\n", "a.txt", "changed\n")
		diff, _, err := k.Diff(t.Context(), path, "", "main", nil, 1<<20)
		testkit.True(t, err == nil && strings.Contains(diff, "+changed") && !strings.Contains(diff, "w.bat"),
			"%s: %s%v", way, diff, err)
		must(t, k.Commit(t.Context(), path, "work"))
		if way == WayRebase {
			write(t, repo, "meanwhile.txt", "x\n")
			gits(t, repo, "add meanwhile.txt", "commit -q -m meanwhile")
			// git rebase refuses to work beside it; the caller updates instead
			refused, _ := errors.AsType[*ConflictError](notMerged(t, k, path, way))
			testkit.Same(t, refused, &ConflictError{Files: []string{"w.bat"}})
			testkit.Get(k.Update(t.Context(), landing(path, way))).Must(t)
			merged(t, k, path, WayMerge)
			continue
		}
		merged(t, k, path, way)
		testkit.Equal(t, gitIn(t, repo, "rev-parse", "main:w.bat"), stored, "%s", way)
		reads(t, repo, "w.bat", "x\r\ny\r\n", "a.txt", "changed\n", "more.txt", "more\n")

		kept, _, err := k.Remove(t.Context(), attemptID, false, nil)
		testkit.True(t, err == nil && len(kept) == 0, "%s: %+v %v", way, kept, err)
	}

	// a real change of such a file is one
	repo, k := newRepo(t), newKeeper(t)
	commit(t, repo, "files", "w.bat", "x\r\n", ".gitattributes", "*.bat text eol=crlf\n")
	path := create(t, k, repo)
	write(t, path, "w.bat", "z\r\n")
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed, []string{"w.bat"})
	_, isDirty := errors.AsType[*DirtyError](notMerged(t, k, path, WayMerge))
	testkit.True(t, isDirty, "it is merged without the change")
}
