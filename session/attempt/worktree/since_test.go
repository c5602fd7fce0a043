package worktree

import (
	"slices"
	"strings"
	"testing"
)

// changedBy returns the files that an attempt is said to have changed, which are the same in its diff.
func changedBy(t *testing.T, k *Keeper, path, target string) []string {
	t.Helper()
	j, err := k.load(attemptID)
	must(t, err)
	st, err := k.Status(t.Context(), path, j.Trees[0].Base, target)
	must(t, err)
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
	if got := changedBy(t, k, path, target); !slices.Equal(got, want) {
		t.Errorf("changed are %q, want %q", got, want)
	}
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
					if _, err := k.Merge(t.Context(), landing(path, way)); err != nil {
						t.Fatal(err)
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
				if _, err := k.Rebase(t.Context(), landing(path, "")); err != nil {
					t.Fatal(err)
				}
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
	if _, err := k.Rebase(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if list := gitIn(t, path, "log", "--format=%s", release+"..HEAD"); list != "the work" {
		t.Errorf("rebased are %q", list)
	}
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
	if _, err := k.Merge(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	expectChanged(t, k, path, "release", "a.txt", "new.txt")
}
