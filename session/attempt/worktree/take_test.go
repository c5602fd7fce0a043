package worktree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// conflicted is an attempt whose merge has left conflicts: in a.txt, of which a part is resolved by hand; in lib/b.txt,
// which it has deleted; in gone.txt, which main has deleted; in a binary file, and in a script.
func conflicted(t *testing.T) (k *Keeper, repo, path string) {
	t.Helper()
	repo = newRepo(t)
	commit(t, repo, "more", "pic.bin", "a\x00b", "gone.txt", "here\n", "run.sh", "#!/bin/sh\n")
	k, path = attemptIn(t, repo)
	gits(t, path, "rm -q lib/b.txt")
	must(t, os.Chmod(filepath.Join(path, "run.sh"), 0o755))
	commit(t, path, "the rest", "pic.bin", "ours\x00", "gone.txt", "changed\n", "run.sh", "#!/bin/sh\necho ours\n")
	gits(t, repo, "rm -q gone.txt")
	commit(t, repo, "meanwhile", "a.txt", "one\ntwo\nother\n", "pic.bin", "theirs\x00", "lib/b.txt", "changed\n",
		"run.sh", "#!/bin/sh\necho theirs\n", "added.txt", "added\n")
	testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t)
	write(t, path, "a.txt", read(t, path, "a.txt")+"by hand\r\n")
	return k, repo, path
}

// state is everything that a merge in progress has of its files, on the disk and in the index.
func state(t *testing.T, path string) string {
	t.Helper()
	text := gitIn(t, path, "ls-files", "--stage") + "\n" + gitIn(t, path, "status", "--porcelain")
	for _, name := range []string{"a.txt", "lib/b.txt", "gone.txt", "pic.bin", "run.sh", "added.txt"} {
		data, err := os.ReadFile(filepath.Join(path, name))
		text += fmt.Sprintf("\n%s: %q %t", name, data, err == nil)
		if info, err := os.Stat(filepath.Join(path, name)); err == nil {
			text += fmt.Sprint(info.Mode())
		}
	}
	return text
}

// The file of one side resolves a conflict, and undoing that brings back what was there, byte by byte.
func TestTakeASideAndUndoIt(t *testing.T) {
	t.Parallel()
	needUnix(t)
	k, repo, path := conflicted(t)
	before := state(t, path)
	absent := "\x00"
	for _, c := range []struct{ file, ours, theirs string }{
		{"a.txt", "one\ntwo\nthree\n", "one\ntwo\nother\n"},
		{"lib/b.txt", absent, "changed\n"},
		{"gone.txt", "changed\n", absent},
		{"pic.bin", "ours\x00", "theirs\x00"},
		{"run.sh", "#!/bin/sh\necho ours\n", "#!/bin/sh\necho theirs\n"},
	} {
		for side, want := range map[string]string{Ours: c.ours, Theirs: c.theirs} {
			must(t, k.TakeSide(t.Context(), path, c.file, side, nil))
			if want == absent {
				testkit.True(t, !isThere(filepath.Join(path, c.file)), "%s is there as %s has it", c.file, side)
			} else {
				reads(t, path, c.file, want)
			}
			st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t)
			testkit.Same(t, st.Resolved, []string{c.file})
			testkit.Equal(t, len(st.Conflicts), 4, "conflicts are left without %s", c.file)
			testkit.FailsWith(t, k.TakeSide(t.Context(), path, c.file, side, nil), ErrNoConflict, "twice")
			kept := testkit.Get(k.Untake(t.Context(), path, c.file, nil)).Must(t)
			testkit.True(t, kept == nil, "nothing was changed, and is kept: %+v", kept)
			testkit.Equal(t, refs(t, repo, takenRefs), "", "refs after %s of %s", side, c.file)
			testkit.Equal(t, state(t, path), before, "%s of %s", side, c.file)
		}
	}
	testkit.Get(k.Untake(t.Context(), path, "a.txt", nil)).Must(t)
	testkit.Equal(t, state(t, path), before, "undone twice")
	testkit.FailsWith(t, testkit.Get(k.Untake(t.Context(), path, "added.txt", nil)).Err(), ErrNoConflict, "never in it")
	testkit.FailsWith(t, k.TakeSide(t.Context(), path, "added.txt", Ours, nil), ErrNoConflict, "without a conflict")
	testkit.FailsWith(t, k.TakeSide(t.Context(), path, "lib", Ours, nil), ErrNoConflict, "a folder")
	testkit.FailsWith(t, k.TakeSide(t.Context(), path, "a.txt", "both", nil), ErrNoConflict, "no side")
	testkit.FailsWith(t, k.TakeSide(t.Context(), path, "a.txt", Ours, func() bool { return true }), ErrInUse)

	// What was changed since is kept.
	must(t, k.TakeSide(t.Context(), path, "a.txt", Theirs, nil))
	write(t, path, "a.txt", "better\n")
	kept := testkit.Get(k.Untake(t.Context(), path, "a.txt", nil)).Must(t)
	testkit.Equal(t, gitIn(t, repo, "show", "--first-parent", kept.Ref), "better")
	testkit.Equal(t, state(t, path), before)

	// A folder in the place of a file is not removed.
	must(t, os.Remove(filepath.Join(path, "pic.bin")))
	write(t, path, "pic.bin/x", "x")
	testkit.FailsWith(t, k.TakeSide(t.Context(), path, "pic.bin", Ours, nil), ErrNotKept, "a folder is in the place")
	reads(t, path, "pic.bin/x", "x")
	must(t, os.RemoveAll(filepath.Join(path, "pic.bin")))

	testkit.FailsWith(t, k.Conclude(t.Context(), landing(path, "")), ErrUnfinished, "with conflicts")
	for _, file := range []string{"a.txt", "lib/b.txt", "gone.txt", "pic.bin", "run.sh"} {
		must(t, k.TakeSide(t.Context(), path, file, Theirs, nil))
	}
	write(t, path, "loose", "of nobody\n")
	must(t, k.Conclude(t.Context(), landing(path, "")))
	testkit.Equal(t, gitIn(t, path, "status", "--porcelain"), "?? loose", "after the merge")
	reads(t, path, "a.txt", "one\ntwo\nother\n", "new.txt", "new\n")
	testkit.FailsWith(t, testkit.Get(k.Untake(t.Context(), path, "a.txt", nil)).Err(), ErrNoMerge)
	merged(t, k, path, WayMerge)
	reads(t, repo, "new.txt", "new\n", "added.txt", "added\n")

	// What was taken in an earlier merge is not that of the next one.
	commit(t, path, "again", "a.txt", "mine\n")
	commit(t, repo, "meanwhile", "a.txt", "yours\n")
	testkit.Same(t, testkit.Get(k.Update(t.Context(), landing(path, ""))).Must(t).Conflicts, []string{"a.txt"})
	testkit.Equal(t, len(testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Resolved), 0)
	testkit.FailsWith(t, testkit.Get(k.Untake(t.Context(), path, "a.txt", nil)).Err(), ErrNoConflict)
	must(t, os.Remove(filepath.Join(path, "loose")))
	testkit.Get(k.Abort(t.Context(), path, nil)).Must(t)
	clean(t, path)
}

// A process that dies while it takes a side, or undoes that, loses nothing: whatever the point, undoing brings back
// what was there, and what was written in between is kept.
func TestCrashAtEachPointOfTake(t *testing.T) {
	t.Parallel()
	needUnix(t)
	for name, undo := range map[string]bool{"take": false, "undo": true} {
		for _, file := range []string{"a.txt", "lib/b.txt", "gone.txt"} {
			points := 2
			for n := 1; n <= points; n++ {
				for _, edit := range []bool{false, true} {
					t.Run(fmt.Sprint(name, n, strings.ReplaceAll(file, "/", "-"), edit), func(t *testing.T) {
						t.Parallel()
						k, repo, path := conflicted(t)
						before := state(t, path)
						do := func() error { return k.TakeSide(t.Context(), path, file, Theirs, nil) }
						if undo {
							must(t, do())
							do = func() error { return testkit.Get(k.Untake(t.Context(), path, file, nil)).Err() }
						}
						testkit.Equal(t, testkit.Get(dieAt(k, n, do)).Must(t), n, "it died at")

						k = New(Options{Dir: k.dir, Logger: k.log})
						if edit {
							write(t, path, file, "written meanwhile\n")
						}
						if st := testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t); len(st.Resolved) == 0 {
							must(t, k.TakeSide(t.Context(), path, file, Ours, nil))
						}
						testkit.Get(k.Untake(t.Context(), path, file, nil)).Must(t)
						testkit.Equal(t, state(t, path), before)
						if edit {
							texts := ""
							for ref := range strings.Lines(refs(t, repo, takenRefs)) {
								texts += gitIn(t, repo, "show", strings.TrimSpace(ref))
							}
							testkit.Contains(t, texts, "written meanwhile")
						}
					})
				}
			}
		}
	}
}

// During a merge the diff and the counts are of the attempt's own change.
func TestTheDiffDuringAMerge(t *testing.T) {
	t.Parallel()
	needUnix(t)
	k, _, path := conflicted(t)
	write(t, path, "loose", "of the attempt\n")
	own := []string{"a.txt", "gone.txt", "lib/b.txt", "loose", "new.txt", "pic.bin", "run.sh"}
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed, own)
	text, _, err := k.Diff(t.Context(), path, "", "main", nil, 1<<20)
	must(t, err)
	testkit.ContainsAll(t, text, []string{"+three", "+of the attempt", "-bee", "+echo ours", "+changed"})
	for _, others := range []string{"<<<<<<<", "added", "other", "theirs", "by hand"} {
		testkit.True(t, !strings.Contains(text, others), "the diff has %q of the merge:\n%s", others, text)
	}
	stat, _, err := k.Diff(t.Context(), path, "", "main", nil, 1<<20, "--numstat")
	must(t, err)
	testkit.Equal(t, strings.Count(stat, "\n"), len(own), "files in %s", stat)
}
