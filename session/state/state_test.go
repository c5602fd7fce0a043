package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/actor/xslices"
)

// newProject makes an empty project, and a base for its state.
func newProject(t *testing.T) (root, base string) {
	t.Helper()
	dir := testkit.Get(Canonical(t.TempDir())).Must(t)
	root, base = filepath.Join(dir, "my project"), filepath.Join(dir, "state")
	must(t, os.Mkdir(root, 0o700))
	t.Setenv(Env, base)
	return root, base
}

var must = testkit.Must

// made makes the state of an empty project.
func made(t *testing.T) (f *Folder, root, base string) {
	t.Helper()
	root, base = newProject(t)
	f = find(t, root)
	must(t, f.Make())
	return f, root, base
}

func find(t *testing.T, root string) *Folder {
	t.Helper()
	return testkit.Get(Find(root)).Must(t)
}

func TestTheStateIsOutsideTheProject(t *testing.T) {
	root, base := newProject(t)
	f := find(t, root)
	testkit.FailsWith(t, testkit.Get(f.ID()).Err(), ErrMissing, "the id of a project without state")
	testkit.Fails(t, testkit.Get(Open(f.Dir)).Err(), "", "a folder that is missing was opened")

	left, _ := filepath.Glob(base + "*")
	testkit.Same(t, left, nil, "what finding made")
	must(t, f.Make())
	id := testkit.Get(f.ID()).Must(t)
	dir := filepath.Base(f.Dir)
	testkit.Equal(t, filepath.Dir(filepath.Dir(f.Dir)), base, "the state is in %s", f.Dir)
	testkit.True(t, strings.HasPrefix(dir, "my_project-"), "the state is in %s", f.Dir)
	testkit.Equal(t, len(dir), len("my_project-")+12, "the state is in %s", f.Dir)

	link := root + "-link"
	must(t, os.Symlink(root, link))
	again := find(t, link)
	testkit.Equal(t, testkit.Get(again.ID()).Must(t)+again.Dir, id+f.Dir, "through a link")

	mode := testkit.Get(os.Stat(f.Dir)).Must(t).Mode()
	testkit.True(t, runtime.GOOS == "windows" || mode.Perm() == 0o700, "the folder: %v", mode)
}

func TestPlacesThatAreRefused(t *testing.T) {
	root, base := newProject(t)
	refused := func(want string) { testkit.Fails(t, testkit.Get(Find(root)).Err(), want) }
	must(t, os.Symlink(root, base))
	for dir, want := range map[string]string{
		"state":                           "absolute",
		filepath.Join(root, "x", "state"): "inside the project",
		root:                              "inside the project",
		base:                              "inside the project",
	} {
		t.Setenv(Env, dir)
		refused(want)
		refused(Env)
	}
	t.Setenv(Env, base)
	if runtime.GOOS == "windows" {
		return
	}
	must(t, errors.Join(os.Remove(base), os.Mkdir(base, 0o700), os.Chmod(base, 0o777)))
	refused("others may write")
	must(t, os.Chmod(base, 0o700))
	if os.Geteuid() == 0 {
		must(t, os.Chown(base, 12345, -1))
		refused("12345")
	}
}

// The folder of exports may be a link inside the project, not to elsewhere.
func TestOpenTmp(t *testing.T) {
	root, _ := newProject(t)
	f := find(t, root)
	for _, dir := range []string{".deepwork", "exports"} {
		must(t, os.Mkdir(filepath.Join(root, dir), 0o700))
	}
	must(t, os.Symlink(filepath.Join(root, "exports"), f.Tmp()))
	tmp := testkit.Get(f.OpenTmp()).Must(t)
	must(t, errors.Join(tmp.WriteFile("x", nil, 0o600), tmp.Close()))
	testkit.Get(os.Stat(filepath.Join(root, "exports", "x"))).Must(t)
	must(t, os.Remove(f.Tmp()))
	must(t, os.Symlink(t.TempDir(), f.Tmp()))
	testkit.Fails(t, testkit.Get(f.OpenTmp()).Err(), "leads out of the project")
	testkit.Fails(t, f.OwnTmp(), "leads out of the project")
	must(t, os.Remove(f.Tmp()))
	testkit.Works(t, f.OwnTmp(), "without a folder")
	must(t, os.Symlink(filepath.Join(root, "exports"), f.Tmp()))
	testkit.Works(t, f.OwnTmp(), "with a link inside")
}

// A state that somebody removes is made again; a project for whose state there is no place says why.
func TestAStateThatIsGone(t *testing.T) {
	f, root, base := made(t)
	must(t, errors.Join(f.Make(), os.RemoveAll(base), f.Make()))
	testkit.Get(os.Stat(filepath.Join(f.Dir, "project.json"))).Must(t)
	link := filepath.Join(root, "link")
	must(t, os.Symlink(f.Dir, link))
	testkit.Equal(t, testkit.Get(Open(link)).Must(t).Dir, f.Dir)

	t.Setenv(Env, "relative")
	testkit.Fails(t, Of(root).Make(), "absolute")

	for n := range 2 {
		name := Name(filepath.Join(base, strings.Repeat("x", maxName+n)))
		testkit.True(t, len(name) == maxName+13 && strings.HasPrefix(name, strings.Repeat("x", maxName)+"-"),
			"%s", name)
	}

	// The folder says which project it is of, and must be where that has its state.
	f, root, _ = made(t)
	t.Setenv(Env, t.TempDir()) // as for another program
	again := testkit.Get(Open(f.Dir)).Must(t)
	testkit.True(t, again.Root == root && again.Dir == f.Dir, "%+v", again)

	planted := filepath.Join(root, ".deepwork")
	must(t, os.CopyFS(planted, os.DirFS(f.Dir)))
	testkit.Fails(t, testkit.Get(Open(planted)).Err(), "", "a copy in the project")
	must(t, os.RemoveAll(root))
	testkit.Fails(t, testkit.Get(Open(f.Dir)).Err(), "", "a project that is gone was found")
}

func TestBaseFollowsTheSystem(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the variables of Unix")
	}
	t.Setenv(Env, "")
	for _, c := range [][3]string{{"/s", "/h", "/s/deepwork"}, {"", "/h", "/h/.local/state/deepwork"},
		{"relative", "/h", "/h/.local/state/deepwork"}, {"", "", ""}} {
		t.Setenv("XDG_STATE_HOME", c[0])
		t.Setenv("HOME", c[1])
		got, err := Base()
		testkit.True(t, got == c[2] && (err != nil) == (got == ""), "%v: %q, %v", c, got, err)
	}
}

// The first makes the id, the key and the token of the user; all have the same.
func TestManyBeginAtOnce(t *testing.T) {
	root, _ := newProject(t)
	testkit.FailsWith(t, testkit.Get(find(t, root).Token(false)).Err(), ErrMissing, "before")
	var wg sync.WaitGroup
	got := make([]string, 8)
	for n := range got {
		wg.Go(func() {
			f := testkit.Get(Find(root)).Must(t)
			must(t, f.Make())
			id := testkit.Get(f.ID()).Must(t)
			got[n] = fmt.Sprintf("%s %x %s", id, testkit.Get(f.Key(true)).Must(t).Sign(id, "name", []byte("content")),
				testkit.Get(f.Token(true)).Must(t))
		})
	}
	wg.Wait()
	for n := range got {
		testkit.Equal(t, got[n], got[0], "the %dth", n)
	}
	f := find(t, root)
	token := testkit.Get(f.Token(false)).Must(t)
	testkit.Equal(t, len(token), 43)
	testkit.Contains(t, got[0], " "+token)

	if runtime.GOOS == "windows" {
		return
	}

	path := filepath.Join(f.Dir, tokenFile)
	testkit.Equal(t, testkit.Get(os.Stat(path)).Must(t).Mode().Perm()&0o077, 0)
	must(t, os.Chmod(path, 0o644))
	testkit.Fails(t, testkit.Get(f.Token(true)).Err(), "", "a token that others can read is used")
}

func TestAKeySignsProjectNameAndContent(t *testing.T) {
	root, base := newProject(t)
	f := find(t, root)
	testkit.FailsWith(t, testkit.Get(f.Key(false)).Err(), ErrMissing, "a key that nobody made")

	k := testkit.Get(f.Key(true)).Must(t)
	seen := map[string]bool{}
	for _, c := range [][3]string{{"p", "n", "c"}, {"q", "n", "c"}, {"p", "m", "c"}, {"p", "n", "d"}, {"p", "n\n", "c"},
		{"p", "n", "\nc"}} {
		seen[string(k.Sign(c[0], c[1], []byte(c[2])))] = true
	}
	testkit.Equal(t, len(seen), 6, "of 6 signatures differ")

	other, _ := newProject(t)
	testkit.True(t, testkit.Get(find(t, other).Key(true)).Must(t).ID() != k.ID(),
		"two keys are the same: they are not random")

	if runtime.GOOS == "windows" {
		return
	}

	must(t, os.Chmod(filepath.Join(base, keyFile), 0o644))
	testkit.Fails(t, testkit.Get(f.Key(true)).Err(), "chmod 600", "a key that all can read")
}

// never says that a state is not empty.
func never() bool { return false }

func TestAdoptFollowsAMovedProject(t *testing.T) {
	f, root, _ := made(t)
	id := testkit.Get(f.ID()).Must(t)
	must(t, os.WriteFile(f.Database(), []byte("board"), 0o600))
	moved := root + " 2"
	must(t, os.Mkdir(moved, 0o700))
	testkit.Fails(t, find(t, moved).Adopt(root, never, func() error { return nil }), "",
		"a project that is there was adopted")
	must(t, errors.Join(os.Remove(moved), os.Rename(root, moved)))
	must(t, find(t, moved).Adopt(root, never, func() error { return nil }))
	now := find(t, moved)
	testkit.Equal(t, testkit.Get(now.ID()).Must(t), id)
	testkit.Equal(t, string(testkit.Get(os.ReadFile(now.Database())).Must(t)), "board", "the board")

	again := root + " 3"
	must(t, os.Rename(moved, again))
	must(t, find(t, again).Adopt(moved, never, func() error { return nil }))

	// Other projects where it was do not get its state.
	for _, was := range []string{root, moved} {
		must(t, os.Mkdir(was, 0o700))
		other := find(t, was)
		must(t, other.Make())
		testkit.True(t, testkit.Get(other.ID()).Must(t) != id && other.Dir != now.Dir,
			"the new project has the state in %s", other.Dir)
	}
	testkit.Equal(t, find(t, again).Dir, now.Dir, "the state of the moved project")

	// A command has begun a state in the next place.
	last := root + " 4"
	must(t, os.Rename(again, last))
	begun := find(t, last)
	must(t, begun.Make())
	testkit.Fails(t, begun.Adopt(again, never, func() error { return nil }), "has its own state already",
		"a state that is in use")
	must(t, begun.Adopt(again, func() bool { return true }, func() error { return nil }))
	testkit.Equal(t, find(t, last).Dir, now.Dir, "after an empty state was put aside")
}

// The projects that have state here, the one used last first, without those that are gone, moved or cannot be read.
func TestProjects(t *testing.T) {
	root, base := newProject(t)
	listed := func(wantGone int, want ...string) {
		t.Helper()
		all, gone, err := Projects()
		testkit.Works(t, err)
		testkit.Equal(t, gone, wantGone)
		testkit.Same(t, xslices.Map(all, func(p Project) string { return filepath.Base(p.Root) }), want)
	}
	listed(0)
	for i, name := range []string{"gone", "old", "moved", "file", "new", "board"} {
		dir := filepath.Join(root, name)
		must(t, os.Mkdir(dir, 0o700))
		f := find(t, dir)
		must(t, f.Make())
		if name == "board" {
			testkit.Write(t, f.Database()+"-wal", "x")
			must(t, os.Chtimes(f.Database()+"-wal", time.Time{}, time.Now().Add(time.Hour)))
		}
		must(t, os.Chtimes(f.Dir, time.Time{}, time.Now().Add(time.Duration(i-10)*time.Hour)))
	}
	testkit.Write(t, filepath.Join(base, "projects", "broken", "project.json"), "{")
	must(t, errors.Join(os.Remove(filepath.Join(root, "gone")), os.Remove(filepath.Join(root, "file"))))
	testkit.Write(t, filepath.Join(root, "file"), "x")
	must(t, os.Rename(filepath.Join(root, "moved"), filepath.Join(root, "here")))
	must(t, find(t, filepath.Join(root, "here")).Adopt(filepath.Join(root, "moved"), never, func() error {
		return nil
	}))
	must(t, os.Mkdir(filepath.Join(root, "moved"), 0o700))
	listed(2, "board", "here", "new", "old")
}

// A path among the worktrees of a project leads to its state, also if that is gone. No other path does.
func TestAround(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("worktrees have other paths there")
	}
	f := Of(t.TempDir())
	for _, below := range []string{"id", "id/shop", "id/shop/a/b"} {
		dir, got := Around(filepath.Join(f.Worktrees(), below))
		testkit.Equal(t, dir+" "+got, f.Dir+" "+below)
	}
	for _, path := range []string{"/", f.Root, f.Dir, f.Worktrees(), filepath.Join(f.Logs(), "id"),
		"/src/projects/shop/worktrees/id", "/src/shop-0123456789ab/worktrees/id"} {
		dir, below := Around(path)
		testkit.Equal(t, dir+below, "", "%s", path)
	}
}

// A project is searched upwards as git searches a repository, and no further.
func TestField09_Upwards(t *testing.T) {
	root, base := newProject(t)
	top := filepath.Dir(root)
	t.Setenv("HOME", filepath.Join(top, "home"))
	t.Setenv("USERPROFILE", filepath.Join(top, "home"))
	for _, dir := range []string{"app/.deepwork", "app/src/deep", "app/mod/.git", "app/mod/src", "home/work/x",
		"repo/.git", "repo/src", "with state/src", "../home/x", "../.deepwork"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, find(t, filepath.Join(root, "with state")).Make())
	for dir, want := range map[string]string{
		"my project/app":            "my project/app",
		"my project/app/src/deep":   "my project/app",
		"my project/app/mod/src":    "my project/app/mod/src",
		"my project/repo/src":       "my project/repo/src",
		"my project/with state/src": "my project/with state",
		"my project/home/work":      ".",
		"home/x":                    "home/x",
		"home":                      "home",
	} {
		testkit.Equal(t, Upwards(filepath.Join(top, dir)), filepath.Join(top, want), "from %s", dir)
	}
	for link, to := range map[string]string{"into": "my project/app/src", "my project/app/out": "home/x"} {
		if err := os.Symlink(filepath.Join(top, to), filepath.Join(top, link)); err != nil {
			t.Skip("no symlinks here:", err)
		}
	}

	for dir, want := range map[string]string{
		"into/deep":          "my project/app",
		"into":               "my project/app",
		"my project/app/out": "my project/app/out",
	} {
		testkit.Equal(t, Upwards(filepath.Join(top, dir)), filepath.Join(top, want), "through the link %s", dir)
	}
	around := filepath.Join(base, "projects", "x-0123456789ab", "worktrees", "some-attempt")
	must(t, os.MkdirAll(filepath.Join(around, "shop", ".deepwork", "jobs"), 0o755))
	testkit.Equal(t, Upwards(around)+Upwards(filepath.Join(around, "shop", ".deepwork", "jobs")),
		around+filepath.Join(around, "shop"), "from around and in a worktree")

	if runtime.GOOS == "linux" && os.Geteuid() == 0 { // only root can make a folder of another user
		must(t, os.Mkdir(filepath.Join(top, "\xff"), 0o755))
		testkit.Fails(t, testkit.Get(Find(filepath.Join(top, "\xff"))).Err(), "is not valid UTF-8: rename")
		must(t, os.Chown(filepath.Join(root, "app"), 12345, -1))
		testkit.Equal(t, Upwards(filepath.Join(root, "app", "src")), filepath.Join(root, "app", "src"),
			"it went into the folder of another user")
	}
}

// A project knows of its state in another folder, as long as that is there and the project's.
func TestField05_StateElsewhere(t *testing.T) {
	root, base := newProject(t)
	first := find(t, root)
	must(t, errors.Join(os.MkdirAll(filepath.Join(root, ".git"), 0o755), first.Make()))

	elsewhere := func(f *Folder, want string) (file string) {
		t.Helper()
		dir, file := f.Elsewhere()
		testkit.Equal(t, dir, want)
		return file
	}
	elsewhere(first, "")
	t.Setenv(Env, filepath.Join(filepath.Dir(base), "other"))
	second := find(t, root)
	for range 2 { // the second is made, and both are there
		testkit.Equal(t, elsewhere(second, first.Dir), filepath.Join(root, ".git", "deepwork-state"))
		must(t, second.Make())
	}
	must(t, os.RemoveAll(first.Dir))
	elsewhere(second, "")
}
