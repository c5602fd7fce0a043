package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	base := tip(repo, "HEAD")
	check := func(target string, want Status) {
		t.Helper()
		got := testkit.Get(k.Status(t.Context(), path, base, target)).Must(t)
		testkit.True(t, got.Exists && got.Ahead == want.Ahead && got.Behind == want.Behind && slices.Equal(got.Changed, want.Changed), "got %+v, want %+v", got, want)
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
	testkit.True(t, !testkit.Get(k.Status(t.Context(), path+"-none", base, "main")).Must(t).Exists, "there is no folder")
	_, _, err := k.Diff(t.Context(), path+"-none", base, "main", nil, 0)
	testkit.FailsWith(t, err, ErrNoWorktree, "there is no folder")
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), t.TempDir(), base, "main")).Err(), ErrNoWorktree, "of a plain folder")
	testkit.Fails(t, testkit.Get(k.Status(t.Context(), path, "--all", "vanished")).Err(), "", "a base that is no commit was taken")
}

func TestStatusNeverSeesTheCheckoutAround(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "secret of the checkout", "x")
	k := New(Options{Dir: filepath.Join(repo, ".deepwork", "worktrees")})
	path := create(t, k, repo)
	os.Remove(filepath.Join(path, ".git"))
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed, nil)
	os.RemoveAll(k.journal)
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Err(), ErrNoWorktree)
	_, _, err := k.Diff(t.Context(), path, "", "main", nil, 0)
	testkit.FailsWith(t, err, ErrNoWorktree)
}

func TestDiff(t *testing.T) {
	t.Parallel()
	k, repo, path := started(t)
	gits(t, repo, "config diff.noprefix true", "config diff.external false", "config color.ui always", "config diff.mnemonicPrefix true")
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
	only := func(paths ...string) string { text, _ := diff(0, paths...); return text }
	text, truncated := diff(0)
	testkit.True(t, !truncated, "it is cut")
	testkit.ContainsAll(t, text, []string{"diff --git a/a.txt b/a.txt\n", "-two\n+TWO\n", "+in a commit\n", "+new\n", "new file mode 100644", "b/empty\n", "Binary files /dev/null and b/binary differ\n"})
	for _, not := range []string{"ignored", "upstream", "\x1b"} {
		testkit.True(t, !strings.Contains(text, not), "the diff has %q", not)
	}
	testkit.True(t, read(t, indexAt) == index && !isThere(indexAt+".lock"), "the worktree's index was touched")
	got := only("untracked *.txt")
	testkit.True(t, strings.Contains(got, "+new") && !strings.Contains(got, "other"), "a path was taken for a pattern: %s", got)
	testkit.Equal(t, only("*.txt"), "", "a path was taken for a pattern")
	got = only("other.txt", "./lib/")
	testkit.True(t, strings.Contains(got, "+other") && !strings.Contains(got, "TWO"), "of two paths: %s", got)
	testkit.Equal(t, only("."), text, "of . there is less")
	for n := 1; n < len(text); n += 7 {
		part, truncated := diff(n)
		testkit.Need(t, truncated && len(part) <= n && strings.HasPrefix(text, part) && (!strings.Contains(text[:n], "\n") || strings.HasSuffix(part, "\n")), "at %d bytes: %q, %v", n, part, truncated)
		n *= 2
	}
	part, truncated := diff(len(text))
	testkit.True(t, !truncated && part == text, "at its very size it is cut")
	for in, want := range map[string]string{"one\ntwo": "one\n", "abc": "abc", "日本"[:5]: "日", "": "", "ü": "ü", "\n": "\n"} {
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
		if _, name, is := strings.Cut(line, " b/"); is && strings.HasPrefix(line, "diff ") {
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
	release := commit(t, repo, "released", "r.txt", "released\n")
	l := landing(path, WayRebase)
	l.Target = "release"
	testkit.Get(k.Rebase(t.Context(), l)).Must(t)
	testkit.Equal(t, gitIn(t, path, "log", "--format=%s", release+"..HEAD"), "the work", "rebased")
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
	testkit.Get(k.Merge(t.Context(), l)).Must(t)
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
}

// Commit commits what agents have left, as the user, without copies that git does not ignore; it ends a merge whose conflicts
// are resolved, and refuses one with conflicts.
func TestCommitWhatIsLeft(t *testing.T) {
	asUser(t, "")
	repo, k := newRepo(t), newKeeper(t)
	write(t, repo, "secret", "s\n")
	path := makes(t, k, tree(repo, "secret"))[0].Path
	before := tip(path, "HEAD")
	must(t, k.Commit(t.Context(), path, "nothing"))
	testkit.Equal(t, tip(path, "HEAD"), before, "a commit of nothing")
	write(t, path, "a.txt", "theirs\n", "new dir/new.txt", "n\n")
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	testkit.Equal(t, gitIn(t, path, "show", "--format=%an %s", "--name-only"), "Una User left\n\na.txt\nnew dir/new.txt")
	testkit.Equal(t, gitIn(t, path, "status", "--porcelain"), "?? secret")
	for _, inside := range []string{filepath.Join(path, "vendor", "theirs"), filepath.Join(path, "a.txt")} {
		testkit.Must(t, errors.Join(os.RemoveAll(inside), os.CopyFS(inside, os.DirFS(newRepo(t)))))
		testkit.Fails(t, k.Commit(t.Context(), path, "left"), inside+" is a git repository of its own")
		testkit.Must(t, os.RemoveAll(inside))
	}
	gits(t, path, "restore a.txt")
	testkit.Must(t, os.Remove(filepath.Join(repo, "secret"))) // else it is committed there
	commit(t, repo, "meanwhile", "a.txt", "ours\n")
	testkit.Equal(t, len(testkit.Get(k.Update(t.Context(), landing(path, WayMerge))).Must(t).Conflicts), 1)
	testkit.FailsWith(t, k.Commit(t.Context(), path, "left"), ErrUnfinished)
	gits(t, path, "checkout -q --ours a.txt", "add a.txt") // which changes nothing
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	merged(t, k, path, WayMerge)
	holds(t, repo, "main", "a.txt", "theirs\n")
}
