package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// A history is what happened in a folder: before the attempt, in it, and meanwhile in the target.
type history struct {
	before, ours, theirs func(t *testing.T, dir string)
}

// lines are many, so that git finds renames and merges changes of both ends.
var lines = strings.Repeat("a line of FOLDER\n", 20)

func writes(files ...string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		for i := 0; i < len(files); i += 2 {
			write(t, dir, files[i], strings.ReplaceAll(files[i+1], "FOLDER", filepath.Base(dir)))
		}
	}
}

func moves(from, to string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755))
		gitIn(t, dir, "mv", from, to)
	}
}

func removes(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) { gitIn(t, dir, "rm", "-rq", name) }
}

// submodule sets the commit of a submodule that is not there.
func submodule(digit string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		gitIn(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat(digit, 40)+","+gitIn(t, dir, "rev-parse", "--show-prefix")+"sub")
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	}
}

func links(to, name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		testkit.Must(t, errors.Join(os.RemoveAll(filepath.Join(dir, name)), os.Symlink(to, filepath.Join(dir, name))))
	}
}

func allOf(all ...func(*testing.T, string)) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		for _, do := range all {
			do(t, dir)
		}
	}
}

func nothing(*testing.T, string) {}

// fitting have no conflicts, and conflicting do.
var (
	fitting = map[string]history{
		"rename-and-edit": {writes("f", lines), moves("f", "sub/g"), writes("f", lines+"end\n")},
		"rename-alike":    {writes("f", lines), allOf(moves("f", "g"), writes("g", "top\n"+lines)), allOf(moves("f", "g"), writes("g", lines+"end\n"))},
		"binary":          {writes("f", "\x00\x01\r\n\xff"), writes("f", "\x00\x02\r\n\xff"), writes("g", "\x00\xfe")},
		"quoted-names":    {writes("ä ö", lines), writes("ä ö", "top\n"+lines, "-v", "x\n"), writes("ä ö", lines+"end\n")},
		"crlf-attribute":  {writes(".gitattributes", "f text eol=crlf\n", "f", lines), writes("f", "top\n"+lines), writes("f", lines+"end\n")},
		"crlf":            {writes("f", "a\r\nb\r\nc\r\n"), writes("f", "a\r\nb\r\nd\r\n"), writes("g", "x\r\n")},
		"new-attribute":   {nothing, writes("f", lines), writes(".gitattributes", "f text eol=crlf\n")},
		"file-to-folder":  {writes("x", lines, "y/z", "y"+lines), allOf(removes("x"), writes("x/1", "1\n")), allOf(removes("y"), writes("y", "y\n"))},
		"submodule":       {submodule("1"), submodule("2"), writes("f", lines)},
		"submodule-new":   {nothing, submodule("4"), nothing},
		"submodule-gone":  {submodule("5"), nothing, removes("sub")},
		"empty-files":     {writes("f", ""), writes("g", ""), removes("f")},
		"same-change":     {writes("f", lines), writes("f", lines+"end\n", "g", "g\n"), writes("f", lines+"end\n")},
	}
	conflicting = map[string]history{
		"rename-to-two":    {writes("f", lines), moves("f", "g"), moves("f", "h")},
		"two-to-one":       {writes("f", lines, "g", "g "+lines), moves("f", "h"), moves("g", "h")},
		"renamed-folder":   {writes("old/1", "1"+lines, "old/2", "2"+lines), moves("old", "new"), writes("old/3", "3\n")},
		"rename-of-gone":   {writes("f", lines), moves("f", "g"), removes("f")},
		"edit-of-gone":     {writes("f", lines), removes("f"), writes("f", "top\n"+lines)},
		"binaries":         {writes("f", "\x00\x01"), writes("f", "\x00\x02"), writes("f", "\x00\x03")},
		"submodules":       {submodule("1"), submodule("2"), submodule("3")},
		"crlf-on-one-side": {writes("f", "a\nb\n"), writes("f", "a\r\nb\r\n"), writes("f", "a\nc\n")},
		"both-new":         {nothing, writes("f", "f\n"), writes("f", "g\n")},
		"fits":             {writes("f", lines), writes("f", "top\n"+lines), writes("f", lines+"end\n")},
	}
)

func init() {
	if runtime.GOOS != "windows" {
		runs := func(t *testing.T, dir string) { testkit.Must(t, os.Chmod(filepath.Join(dir, "f"), 0o755)) }
		fitting["modes"] = history{writes("f", lines), runs, writes("f", lines+"end\n")}
		fitting["links"] = history{writes("f", lines), allOf(links("../nowhere", "f"), links("..", "g")), nothing}
		conflicting["links-that-differ"] = history{nothing, links("f", "link"), links("g", "link")}
	}
}

// Merges have the result that git itself has in a clone, and leave the same conflicts.
func TestMergeDoesAsGitDoes(t *testing.T) {
	for _, c := range []struct {
		way Way
		old bool
	}{{WayMerge, false}, {WayRebase, false}, {WaySquash, true}} {
		for _, all := range []map[string]history{fitting, conflicting} {
			t.Run(fmt.Sprintf("%s, old git %t, %d", c.way, c.old, len(all)), func(t *testing.T) {
				asUser(t, "")
				repo := newRepo(t)
				k, _ := newKeeper(t)
				k.oldGit = c.old
				happen := func(dir string, part func(history) func(*testing.T, string)) {
					for _, name := range slices.Sorted(maps.Keys(all)) {
						write(t, dir, name+"/keep", name)
						part(all[name])(t, filepath.Join(dir, name))
					}
					commit(t, dir, "work")
				}
				happen(repo, func(h history) func(*testing.T, string) { return h.before })
				path := create(t, k, repo)
				happen(path, func(h history) func(*testing.T, string) { return h.ours })
				happen(repo, func(h history) func(*testing.T, string) { return h.theirs })
				clone := filepath.Join(t.TempDir(), "clone")
				gitIn(t, repo, "clone", "-q", repo, clone)
				if len(all) == len(fitting) {
					if _, err := k.Merge(t.Context(), landing(path, c.way)); err != nil {
						t.Fatal(err)
					}
					gitIn(t, clone, "merge", "-q", "--no-ff", "-m", "x", "origin/"+branchName)
					clean(t, repo, path)
					sound(t, repo, 1)
					sameFiles(t, repo, clone)
					return
				}
				if _, err := k.Merge(t.Context(), landing(path, c.way)); err == nil {
					t.Error("merged")
				}
				clean(t, repo, path)
				gitIn(t, clone, "checkout", "-q", branchName)
				tryGit(clone, "merge", "-q", "origin/main")
				if got, err := k.Update(t.Context(), landing(path, "")); err != nil || len(got.Conflicts) < len(all)-1 {
					t.Fatalf("%+v, %v", got, err)
				}
				if has, want := gitIn(t, path, "ls-files", "--stage"), gitIn(t, clone, "ls-files", "--stage"); has != want {
					t.Errorf("the index has\n%s\nand git's\n%s", has, want)
				}
				sameFiles(t, path, clone)
				if _, err := k.Abort(t.Context(), path, nil); err != nil {
					t.Fatal(err)
				}
				clean(t, path)
			})
		}
	}
}

// labels are the names of both sides in conflict markers and in the names of files.
var labels = regexp.MustCompile(`(?m)^(<<<<<<<|>>>>>>>) .*`)

// sameFiles checks that two worktrees have the same files.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	files := func(dir string) map[string]string {
		all := map[string]string{}
		testkit.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(dir, path)
			switch {
			case err != nil || rel == ".git" && d.IsDir():
				return fs.SkipDir
			case d.IsDir() || rel == ".git":
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			text, _ := os.Readlink(path)
			if d.Type().IsRegular() {
				text = labels.ReplaceAllString(read(t, path), "$1")
			}
			all[rel] = info.Mode().String() + " " + text
			return nil
		}))
		return all
	}
	has, want := files(a), files(b)
	for name, text := range want {
		if has[name] != text {
			t.Errorf("%s is %q, and git's %q", name, has[name], text)
		}
		delete(has, name)
	}
	if len(has) > 0 {
		t.Errorf("git does not have %q", has)
	}
}
