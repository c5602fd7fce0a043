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
	repo := newRepo(t)
	base := gitIn(t, repo, "rev-parse", "HEAD")
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	check := func(target string, want Status) {
		t.Helper()
		got := testkit.Get(k.Status(t.Context(), path, base, target)).Must(t)
		testkit.True(t, got.Exists && got.Ahead == want.Ahead && got.Behind == want.Behind && slices.Equal(got.Changed, want.Changed), "got %+v, want %+v", got, want)
	}
	check("main", Status{})
	write(t, path, "committed", "1")
	write(t, path, "lib/b.txt", "changed")
	commit(t, path, "one")
	write(t, path, "a.txt", "changed")
	write(t, path, "with space/ü 日本", "2")
	write(t, path, "x.log", "ignored")
	write(t, path, "staged", "3")
	gitIn(t, path, "add", "staged")
	want := []string{"a.txt", "committed", "lib/b.txt", "staged", "with space/ü 日本"}
	if runtime.GOOS != "windows" {
		write(t, path, "line\nbreak", "4")
		want = append(want, "line\nbreak")
	}
	os.Remove(filepath.Join(path, ".gitignore"))
	write(t, path, ".git-not", "")
	os.Remove(filepath.Join(path, "x.log"))
	want = append(want, ".git-not", ".gitignore")
	slices.Sort(want)
	check("main", Status{Ahead: 1, Changed: want})

	write(t, repo, "upstream", "u")
	commit(t, repo, "upstream")
	commitEmpty(t, repo)
	check("main", Status{Ahead: 1, Behind: 2, Changed: want}) // what others did is not counted
	check("vanished", Status{Ahead: 1, Changed: want})
	check("", Status{Ahead: 1, Changed: want})
	gitIn(t, path, "reset", "-q", "--", "staged")
	gitIn(t, path, "merge", "-q", "main", "-m", "merge")
	check("main", Status{Ahead: 2, Changed: want})

	st := testkit.Get(k.Status(t.Context(), path+"-none", base, "main")).Must(t)
	testkit.True(t, !st.Exists, "of no folder: %+v", st)
	testkit.FailsWith(t, testkit.Get(k.Status(t.Context(), t.TempDir(), base, "main")).Err(), ErrNoWorktree, "of a plain folder")
	testkit.Fails(t, testkit.Get(k.Status(t.Context(), path, "--all", "vanished")).Err(), "", "a base that is no commit was taken")
}

func commitEmpty(t *testing.T, dir string) {
	gitIn(t, dir, "commit", "-q", "--allow-empty", "-m", "empty")
}

func TestStatusNeverSeesTheCheckoutAround(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "secret of the checkout", "x")
	k := New(Options{Dir: filepath.Join(repo, ".deepwork", "worktrees")})
	path := create(t, k, repo)
	os.Remove(filepath.Join(path, ".git"))
	st, err := k.Status(t.Context(), path, "", "main")
	testkit.True(t, err == nil && len(st.Changed) == 0, "got %+v, %v", st, err)
	os.RemoveAll(k.journal)
	if st, err := k.Status(t.Context(), path, "", "main"); !errors.Is(err, ErrNoWorktree) {
		t.Errorf("got %+v, %v", st, err)
	}
	if _, _, err := k.Diff(t.Context(), path, "", "main", nil, 0); !errors.Is(err, ErrNoWorktree) {
		t.Errorf("got %v", err)
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	for key, value := range map[string]string{"diff.noprefix": "true", "diff.external": "false", "color.ui": "always", "diff.mnemonicPrefix": "true"} {
		gitIn(t, repo, "config", key, value)
	}
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "committed.txt", "in a commit\n")
	commit(t, path, "one")
	write(t, path, "a.txt", "one\nTWO\n")
	write(t, path, "untracked *.txt", "new\n")
	write(t, path, "other.txt", "other\n")
	write(t, path, "empty", "")
	write(t, path, "x.log", "ignored\n")
	write(t, path, "binary", "\x00\x01\x02")
	write(t, repo, "upstream", "u\n")
	commit(t, repo, "upstream")
	indexAt := gitIn(t, path, "rev-parse", "--git-path", "index")
	index := read(t, indexAt)
	text, truncated, err := k.Diff(t.Context(), path, "", "main", nil, 0)
	testkit.Need(t, err == nil && !truncated, "%v %v", truncated, err)
	testkit.ContainsAll(t, text, []string{"diff --git a/a.txt b/a.txt\n", "-two\n+TWO\n", "+in a commit\n", "+new\n", "new file mode 100644", "b/empty\n", "Binary files /dev/null and b/binary differ\n"}, "the diff lacks")
	for _, not := range []string{"ignored", "upstream", "\x1b"} {
		testkit.True(t, !strings.Contains(text, not), "the diff has %q", not)
	}
	testkit.True(t, read(t, indexAt) == index && !isThere(indexAt+".lock"), "the worktree's index was touched")
	only := func(paths ...string) string {
		t.Helper()
		text, _, err := k.Diff(t.Context(), path, "", "main", paths, 0)
		testkit.Works(t, err)
		return text
	}
	got := only("untracked *.txt")
	testkit.True(t, strings.Contains(got, "+new") && !strings.Contains(got, "other"), "a path was taken for a pattern: %s", got)
	testkit.Equal(t, only("*.txt"), "", "a path was taken for a pattern")
	got = only("other.txt", "./lib/")
	testkit.True(t, strings.Contains(got, "+other") && !strings.Contains(got, "TWO"), "of two paths: %s", got)
	testkit.Equal(t, only("."), text, "of . there is less")
	for n := 1; n < len(text); n += 7 {
		part, truncated, err := k.Diff(t.Context(), path, "", "main", nil, n)
		testkit.Need(t, err == nil && truncated && len(part) <= n && strings.HasPrefix(text, part) && (!strings.Contains(text[:n], "\n") || strings.HasSuffix(part, "\n")), "at %d bytes: %q, %v, %v", n, part, truncated, err)
		n *= 2
	}
	if part, truncated, err := k.Diff(t.Context(), path, "", "main", nil, len(text)); err != nil || truncated || part != text {
		t.Errorf("at its very size it is cut: %v, %v", truncated, err)
	}
}

func TestCutKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"one\ntwo": "one\n", "abc": "abc", "日本"[:5]: "日", "": "", "ü": "ü", "\n": "\n"} {
		testkit.Equal(t, cut([]byte(in)), want, "cut(%q)", in)
	}
}

// changedBy returns the files that an attempt is said to have changed, which are the same in its diff.
func changedBy(t *testing.T, k *Keeper, path, target string) []string {
	t.Helper()
	j := testkit.Get(k.load(attemptID)).Must(t)
	st := testkit.Get(k.Status(t.Context(), path, j.Trees[0].Base, target)).Must(t)
	diff, _, err := k.Diff(t.Context(), path, j.Trees[0].Base, target, nil, 1<<28)
	must(t, err)
	var files []string
	for line := range strings.Lines(diff) {
		if _, name, is := strings.Cut(line, " b/"); is && strings.HasPrefix(line, "diff ") {
			files = append(files, strings.TrimSpace(name))
		}
	}
	if slices.Sort(files); !slices.Equal(files, st.Changed) {
		t.Errorf("changed are %q, and in the diff %q", st.Changed, files)
	}
	return files
}

func expectChanged(t *testing.T, k *Keeper, path, target string, want ...string) {
	t.Helper()
	testkit.Same(t, changedBy(t, k, path, target), want, "changed")
}

// What an attempt has changed is its own work, however often it is merged, while others work on the
// target, too.
func TestDiffAfterMerges(t *testing.T) {
	for _, way := range ways {
		for _, others := range []bool{false, true} {
			t.Run(string(way)+map[bool]string{true: ", others too"}[others], func(t *testing.T) {
				t.Parallel()
				repo := newRepo(t)
				k, path := attemptIn(t, repo)
				other := func(name string) {
					if others {
						write(t, repo, name, "theirs\n")
						commit(t, repo, name)
					}
				}
				merge := func() {
					t.Helper()
					testkit.Get(k.Merge(t.Context(), landing(path, way))).Must(t)
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
				merge()
				expectChanged(t, k, path, "main", "a.txt", "new.txt")
				other("y.txt")
				expectChanged(t, k, path, "main", "a.txt", "new.txt")
				write(t, path, "more.txt", "more\n")
				expectChanged(t, k, path, "main", "a.txt", "more.txt", "new.txt")
				commit(t, path, "more")
				merge()
				expectChanged(t, k, path, "main", slices.Sorted(slices.Values(after("a.txt new.txt", "more.txt")))...)
				other("z.txt")
				gitIn(t, repo, "gc", "-q", "--prune=now")
				expectChanged(t, k, path, "main", slices.Sorted(slices.Values(after("a.txt new.txt", "more.txt")))...)
				write(t, path, "third.txt", "third\n")
				commit(t, path, "third")
				other("zz.txt")
				testkit.Get(k.Rebase(t.Context(), landing(path, ""))).Must(t)
				clean(t, repo, path)
				if way == WayMerge || others {
					expectChanged(t, k, path, "main", "third.txt")
				} else {
					expectChanged(t, k, path, "main", "a.txt", "more.txt", "new.txt", "third.txt")
				}
				// The agent takes over the target itself: the work that both have is not shown.
				write(t, repo, "w.txt", "theirs\n")
				commit(t, repo, "theirs")
				gitIn(t, path, "merge", "-q", "main")
				write(t, path, "fourth.txt", "fourth\n")
				expectChanged(t, k, path, "main", "fourth.txt", "third.txt")
			})
		}
	}
}

// Compared with another target, the attempt has not made what its first target has, and does not take
// it along.
func TestDiffAndRebaseToAnotherTarget(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gitIn(t, repo, "branch", "release")
	write(t, repo, "x.txt", "theirs\n")
	commit(t, repo, "theirs")
	k, path := attemptIn(t, repo)
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
	gitIn(t, repo, "checkout", "-q", "release")
	write(t, repo, "r.txt", "released\n")
	release := commit(t, repo, "released")
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
	repo := newRepo(t)
	write(t, repo, "secret", "s\n")
	k, _ := newKeeper(t)
	made := testkit.Get(k.Create(t.Context(), "a1", branchName, []Tree{{RepoID: "r", Name: "repo", Repo: repo, TargetBranch: "main", Copy: []string{"secret"}}}, nil)).Must(t)
	path := made[0].Path
	before := gitIn(t, path, "rev-parse", "HEAD")
	testkit.Must(t, k.Commit(t.Context(), path, "nothing"))
	testkit.Equal(t, gitIn(t, path, "rev-parse", "HEAD"), before, "a commit of nothing")
	write(t, path, "a.txt", "theirs\n")
	write(t, path, "new dir/new.txt", "n\n")
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	testkit.Equal(t, gitIn(t, path, "show", "--format=%an %s", "--name-only"), "Una User left\n\na.txt\nnew dir/new.txt")
	testkit.Equal(t, gitIn(t, path, "status", "--porcelain"), "?? secret")
	for _, inside := range []string{filepath.Join(path, "vendor", "theirs"), filepath.Join(path, "a.txt")} {
		testkit.Must(t, errors.Join(os.RemoveAll(inside), os.CopyFS(inside, os.DirFS(newRepo(t)))))
		testkit.Fails(t, k.Commit(t.Context(), path, "left"), inside+" is a git repository of its own")
		testkit.Must(t, os.RemoveAll(inside))
	}
	gitIn(t, path, "restore", "a.txt")

	testkit.Must(t, os.Remove(filepath.Join(repo, "secret"))) // else it is committed there
	write(t, repo, "a.txt", "ours\n")
	commit(t, repo, "meanwhile")
	landed := testkit.Get(k.Update(t.Context(), landing(path, WayMerge))).Must(t)
	testkit.Equal(t, len(landed.Conflicts), 1)
	testkit.FailsWith(t, k.Commit(t.Context(), path, "left"), ErrUnfinished)
	gitIn(t, path, "checkout", "-q", "--ours", "a.txt") // which changes nothing
	gitIn(t, path, "add", "a.txt")
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
	testkit.Equal(t, show(t, repo, "main", "a.txt"), "theirs\n")
}
