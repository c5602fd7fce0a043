//go:build unix

package export

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/task"
	"deepwork/session/machine"
	"deepwork/session/state"
	"deepwork/session/store"
)

const id = "0123abcd"

// exporting returns the exports of a process, and its root. Its session has the revision newest.
func exporting(t *testing.T) (x *Files, root string, newest *int64) {
	root, newest = testkit.Dir(t), new(int64)
	x = &Files{
		Own:      &state.Folder{Root: root},
		Revision: func(string) int64 { return *newest },
		Logger:   slog.New(slog.DiscardHandler),
	}
	t.Cleanup(x.Close)
	return x, root, newest
}

func at(revision int64) *machine.State {
	return &machine.State{
		FormatVersion: machine.FormatVersion,
		SessionID:     id,
		Revision:      revision,
		UpdatedAt:     time.Now().Add(-time.Minute),
	}
}

// has checks which revision the export in a root has.
func has(t *testing.T, root string, want int64) {
	t.Helper()
	dir := testkit.Get(os.OpenRoot(filepath.Join(root, ".deepwork", "tmp"))).Must(t)
	defer dir.Close()
	got, _ := revisionOf(dir, state.ExportName(id))
	testkit.Need(t, got == want, "the export in %s has revision %d, want %d", root, got, want)
}

// Of two processes that export a session at the same time, the one with the higher revision stays. A file of a
// revision that the session never had is replaced.
func TestTheNewerExportStays(t *testing.T) {
	x, root, newest := exporting(t)
	row := store.Session{ID: id, Root: root}
	for n := range int64(mostSpares + 2) {
		*newest = n
		x.Write(row, at(n))
	}
	for range 3 {
		x.Write(row, at(0))
		has(t, root, mostSpares+1)
	}
	*newest = 3
	x.Write(row, at(3))
	has(t, root, 3)
}

// The export of a session that did not move is written once if it is behind, and again only after Forget.
// What cannot be written is logged once until it can be.
func TestExportsThatAreBehind(t *testing.T) {
	x, root, newest := exporting(t)
	var logged strings.Builder
	x.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	row := store.Session{ID: id, Root: root}
	tmp := filepath.Join(root, ".deepwork", "tmp")
	testkit.Write(t, filepath.Join(tmp, sparePrefix+"old"), "x")
	testkit.Must(t, os.Chtimes(filepath.Join(tmp, sparePrefix+"old"), time.Time{},
		time.Now().Add(-spareLife-time.Minute)))
	testkit.Write(t, filepath.Join(tmp, sparePrefix+"new"), "x")
	other := &Files{Own: x.Own, Revision: x.Revision, Logger: x.Logger}
	t.Cleanup(other.Close)
	for _, c := range []struct{ file, is, newest, want int64 }{{1, 2, 2, 2}, {2, 2, 2, 2}, {3, 2, 3, 3}, {9, 3, 4, 3},
		{4, 3, 4, 4}} {
		*newest = c.file
		other.Write(row, at(c.file))
		*newest = c.newest
		x.Forget(id)
		x.Check(row, at(c.is))
		has(t, root, c.want)
		testkit.Must(t, os.Remove(filepath.Join(tmp, state.ExportName(id))))
		x.Check(row, at(c.is))
		testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(tmp, state.ExportName(id)))).Err(), os.ErrNotExist,
			"of %+v", c)
	}
	x.Check(row, at(4))
	has(t, root, 4)
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(tmp, sparePrefix+"old"))).Err(), os.ErrNotExist,
		"a spare of a server that is gone")
	testkit.Get(os.Stat(filepath.Join(tmp, sparePrefix+"new"))).Must(t)

	// Sessions that belong to other folders: a workspace, one that is gone, one behind a link.
	workspace, link := testkit.Dir(t), filepath.Join(testkit.Dir(t), "link")
	testkit.Must(t, os.Symlink(workspace, link))
	for folder, want := range map[string]int{workspace: 0, filepath.Join(workspace, "gone"): 0, link: 1} {
		logged.Reset()
		x.Write(store.Session{ID: id, Root: folder}, at(4))
		testkit.Equal(t, strings.Count(logged.String(), "cannot be written"), want, "%s: %s", folder, &logged)
	}
	has(t, workspace, 4)
	testkit.FailsWith(t, testkit.Get(os.Stat(filepath.Join(workspace, "gone"))).Err(), os.ErrNotExist)
	logged.Reset()
	for range 2 {
		testkit.Must(t, os.RemoveAll(filepath.Join(workspace, ".deepwork")))
		testkit.Write(t, filepath.Join(workspace, ".deepwork"), "a file")
		x.Write(store.Session{ID: id, Root: workspace}, at(5))
		x.Write(store.Session{ID: id, Root: workspace}, at(6))
		testkit.Must(t, os.Remove(filepath.Join(workspace, ".deepwork")))
		x.Write(store.Session{ID: id, Root: workspace}, at(6))
		has(t, workspace, 6)
	}
	testkit.Equal(t, strings.Count(logged.String(), "cannot be written"), 2, "%s", &logged)
}

// Whatever is in the place of an export or of a spare, nothing else is written to, and no call waits.
func TestExportsOverLinksAndPipes(t *testing.T) {
	trap := filepath.Join(t.TempDir(), "precious")
	testkit.Must(t, os.WriteFile(trap, []byte("precious"), 0o600))
	for name, plant := range map[string]func(path string) error{
		"hard link": func(path string) error { return os.Link(trap, path) },
		"link":      func(path string) error { return os.Symlink(trap, path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder":    func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			x, root, newest := exporting(t)
			tmp := filepath.Join(root, ".deepwork", "tmp")
			for n := range int64(2 * mostSpares) {
				*newest = n
				x.Write(store.Session{ID: id, Root: root}, at(n))
				has(t, root, n)
				all := testkit.Get(filepath.Glob(filepath.Join(tmp, sparePrefix+"*"))).Must(t)
				if n%2 == 0 {
					all = append(all, filepath.Join(tmp, state.ExportName(id)))
				}
				for _, path := range all {
					testkit.Must(t, errors.Join(os.RemoveAll(path), plant(path)))
				}
			}
			testkit.Equal(t, string(testkit.Get(os.ReadFile(trap)).Must(t)), "precious", "the other file")
		})
	}
}

// The inspection does not wait for the other end of a pipe in the place of an export.
func TestInspectionOfPipes(t *testing.T) {
	x, root, _ := exporting(t)
	row := store.Session{ID: id, Root: root}
	x.Write(row, at(1))
	testkit.True(t, x.Behind(row, at(1)) != "", "an export with another time does not differ")

	s := at(1)
	x.Write(row, s)
	testkit.Equal(t, x.Behind(row, s), "", "differs")

	path := filepath.Join(root, ".deepwork", "tmp", state.ExportName(id))
	testkit.Must(t, errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)))
	testkit.Equal(t, x.Behind(row, s), path, "differing export")
}

// A checkout on another machine may have another path than the one where the session began: it has its own
// export. What another place moved last is not looked at.
func TestTheExportOfACheckoutAtAnotherPath(t *testing.T) {
	x, root, newest := exporting(t)
	x.Place, *newest = &task.Place{MachineID: "bbbbbbbb", Root: root}, 2
	row := store.Session{ID: id, Root: "/home/red/p", MachineID: "bbbbbbbb", Place: root}
	s := at(2)
	x.Write(row, s)
	has(t, root, 2)
	for place, want := range map[string]string{
		root:          filepath.Join(root, ".deepwork", "tmp", state.ExportName(id)),
		"/home/red/p": "",
	} {
		row.Place = place
		testkit.Equal(t, x.Behind(row, at(3)), want, "moved last at %s: differing export", place)
	}
	testkit.Write(t, filepath.Join(root, ".deepwork", "tmp", "quality_review_"+id+"_f00d", "files", "a.md"), "a copy")
	testkit.Must(t, x.Remove(row))
	left := testkit.Get(os.ReadDir(filepath.Join(root, ".deepwork", "tmp"))).Must(t)
	testkit.Equal(t, len(left), 0, "of the export and the copies of a killed review there are left: %v", left)
}
