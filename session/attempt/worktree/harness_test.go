package worktree

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"deepwork/actor/testkit"
	"deepwork/session/git"
)

var must = testkit.Must

// TestMain leaves git without any identity or configuration of the machine's.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "worktree-home-*")
	if err != nil {
		panic(err)
	}
	config := filepath.Join(home, "gitconfig")
	_ = os.WriteFile(config, []byte("[user]\n\tname = Una User\n\temail = una@example.com\n"), 0o600)
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL":   config,
		"HOME":                home,
		"XDG_CONFIG_HOME":     home,
		"USERPROFILE":         home,
		"GIT_CONFIG_NOSYSTEM": "1",
		"GORACE":              "atexit_sleep_ms=0",
		"GIT_DIR":             filepath.Join(home, "nowhere"),
		"GIT_INDEX_FILE":      filepath.Join(home, "no-index"),
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(home)
		os.Exit(code)
	}))
}

const attemptID = "3f1c7a52-9d1e-4c44-8b7e-0a5c1d2e3f40"

var gitIn, tryGit = testkit.Git, testkit.TryGit

// write writes files of a worktree or checkout: a name, a text, and so on.
func write(t testing.TB, dir string, files ...string) {
	t.Helper()
	for pair := range slices.Chunk(files, 2) {
		testkit.Write(t, filepath.Join(dir, pair[0]), pair[1])
	}
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	return string(testkit.Get(os.ReadFile(filepath.Join(path...))).Must(t))
}

// reads checks files below a folder: a name, a text, and so on.
func reads(t testing.TB, dir string, files ...string) {
	t.Helper()
	for pair := range slices.Chunk(files, 2) {
		testkit.Equal(t, read(t, dir, pair[0]), pair[1], "%s has", pair[0])
	}
}

// gits runs git in a folder, with the words of each line.
func gits(t testing.TB, dir string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		gitIn(t, dir, strings.Fields(line)...)
	}
}

// needUnix skips a test whose programs are for a Unix shell.
func needUnix(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are for a Unix shell")
	}
}

func executable(t testing.TB, path, text string) {
	t.Helper()
	testkit.Write(t, path, text)
	must(t, os.Chmod(path, 0o755))
}

// newRepo makes a repository with a commit on main.
func newRepo(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "repo")
	must(t, errors.Join(os.CopyFS(dir, os.DirFS(template())), os.Chmod(filepath.Join(dir, ".git", "config"), 0o644)))
	return dir
}

// template makes the repository that newRepo copies.
var template = sync.OnceValue(func() string {
	dir := filepath.Join(os.Getenv("HOME"), "template")
	run := func(args ...string) {
		if _, err := tryGit(dir, args...); err != nil {
			panic(err)
		}
	}
	for name, text := range map[string]string{
		"a.txt":      "one\ntwo\n",
		"lib/b.txt":  "bee\n",
		".gitignore": ".env\n*.log\nnode_modules/\n",
	} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755)
		_ = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644) // else the commit fails
	}
	run("init", "-q", "-b", "main")
	run("add", "-A")
	run("commit", "-q", "-m", "first")
	return dir
})

// commit writes files as write does, and commits all that is there.
func commit(t testing.TB, dir, message string, files ...string) string {
	t.Helper()
	write(t, dir, files...)
	gitIn(t, dir, "add", "-A")
	gitIn(t, dir, "commit", "-q", "--no-verify", "-m", message)
	return gitIn(t, dir, "rev-parse", "HEAD")
}

func newKeeper(t testing.TB) *Keeper {
	t.Helper()
	return New(Options{Dir: filepath.Join(t.TempDir(), "worktrees"), Logger: slog.New(slog.DiscardHandler)})
}

// tree is a repository of the attempt, with files that are copied into it.
func tree(repo string, copies ...string) Tree {
	return Tree{RepoID: "r1", Name: "web", Repo: repo, TargetBranch: "main", Copy: copies}
}

const branchName = "deepwork/do-it-1a2b"

// makes creates worktrees of the attempt.
func makes(t testing.TB, k *Keeper, trees ...Tree) []Made {
	t.Helper()
	return testkit.Get(k.Create(t.Context(), attemptID, branchName, trees, nil)).Must(t)
}

// notMade returns why worktrees of the attempt are not created.
func notMade(t testing.TB, k *Keeper, trees ...Tree) error {
	t.Helper()
	return testkit.Get(k.Create(t.Context(), attemptID, branchName, trees, nil)).Err()
}

// create creates a worktree of a repository, and returns its path.
func create(t testing.TB, k *Keeper, repo string) string {
	t.Helper()
	return makes(t, k, tree(repo))[0].Path
}

// started is an attempt in a new repository.
func started(t testing.TB) (k *Keeper, repo, path string) {
	t.Helper()
	k, repo = newKeeper(t), newRepo(t)
	return k, repo, create(t, k, repo)
}

// worked is an attempt in a new repository, with a commit.
func worked(t testing.TB) (k *Keeper, repo, path string) {
	t.Helper()
	repo = newRepo(t)
	k, path = attemptIn(t, repo)
	return k, repo, path
}

// attemptIn makes a worktree of a repository, with a commit.
func attemptIn(t testing.TB, repo string) (*Keeper, string) {
	t.Helper()
	k := newKeeper(t)
	path := create(t, k, repo)
	commit(t, path, "the work", "new.txt", "new\n", "a.txt", "one\ntwo\nthree\n")
	return k, path
}

// remoteOf makes a bare clone of a repository that is its origin.
func remoteOf(t testing.TB, repo string) string {
	t.Helper()
	remote := filepath.Join(t.TempDir(), "remote.git")
	gits(t, repo, "clone -q --bare . "+remote, "remote add origin file://"+filepath.ToSlash(remote))
	return remote
}

// refs are those of a repository below a prefix.
func refs(t testing.TB, repo, prefix string) string {
	t.Helper()
	return gitIn(t, repo, "for-each-ref", "--format=%(refname)", prefix)
}

func tip(dir, ref string) string {
	out, _ := tryGit(dir, "rev-parse", "--verify", "--quiet", ref)
	return out
}

func clean(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		testkit.Equal(t, gitIn(t, dir, "status", "--porcelain"), "", "%s has changes", dir)
	}
}

func nobodys(string) bool { return false }

// notRemoved returns why the attempt is not removed.
func notRemoved(t testing.TB, k *Keeper) error {
	t.Helper()
	_, _, err := k.Remove(t.Context(), attemptID, false, nil)
	return err
}

// remove removes the attempt and returns the only rescue, or none.
func remove(t testing.TB, k *Keeper) Rescue {
	t.Helper()
	kept, discarded, err := k.Remove(t.Context(), attemptID, false, nil)
	must(t, err)
	testkit.Need(t, len(kept) <= 1 && len(discarded) == 0, "rescues: %+v, discarded: %+v", kept, discarded)
	nothingLeft(t, k)
	return append(kept, Rescue{})[0]
}

// nothingLeft checks that a keeper has no worktree, journal, lock or trash.
func nothingLeft(t testing.TB, k *Keeper) {
	t.Helper()
	filepath.WalkDir(k.dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(k.dir, path)
		testkit.True(t, (err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "repo-")) &&
			(filepath.Dir(rel) != "." || rel == "." || rel == ".journal"), "%s is left", rel)
		return nil
	})
}

// sound checks a repository: its objects, its locks, its list of worktrees.
func sound(t testing.TB, repo string, worktrees int) {
	t.Helper()
	out, err := tryGit(repo, "fsck", "--strict", "--no-dangling")
	testkit.Need(t, err == nil, "git fsck: %v\n%s", err, out)
	testkit.True(t, !strings.Contains(out, "error"), "git fsck: %v\n%s", err, out)
	testkit.True(t, !strings.Contains(out, "missing"), "git fsck: %v\n%s", err, out)

	common := gitIn(t, repo, "rev-parse", "--path-format=absolute", "--git-common-dir")
	filepath.WalkDir(common, func(path string, d fs.DirEntry, err error) error {
		testkit.True(t, err != nil || !strings.HasSuffix(path, ".lock") && d.Name() != "locked",
			"a lock is left: %s", path)
		return nil
	})
	testkit.Equal(t, len(admins(common)), worktrees, "worktrees of the repository: %v", admins(common))
}

// digest is everything in a checkout that attempts must not touch.
func digest(t testing.TB, repo string) (all string) {
	t.Helper()
	must(t, filepath.WalkDir(repo, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(repo, path)
		switch rel = filepath.ToSlash(rel); rel {
		case ".git/worktrees", ".git/objects", ".git/logs", ".git/refs/heads/deepwork", ".git/refs/deepwork":
			return fs.SkipDir
		}
		all += rel + "\n"
		if err == nil && !d.IsDir() {
			info := testkit.Get(d.Info()).Must(t)
			all += fmt.Sprintf("%v %v %q\n", info.Mode(), info.ModTime(), read(t, path))
		}
		return err
	}))
	return all
}

// show is a file's exact content in a commit.
func show(t testing.TB, repo, commit, name string) string {
	t.Helper()
	cmd := exec.Command("git", "cat-file", "blob", commit+":"+name)
	cmd.Dir, cmd.Env = repo, git.Environ()
	out, err := cmd.Output()
	testkit.Works(t, err, "%s is not in the commit", name)
	return string(out)
}

// holds checks files of a commit: a name, a text, and so on.
func holds(t testing.TB, repo, commit string, files ...string) {
	t.Helper()
	for pair := range slices.Chunk(files, 2) {
		testkit.Equal(t, show(t, repo, commit, pair[0]), pair[1], "%s in %s", pair[0], commit)
	}
}

// files lists the paths of a commit.
func files(t testing.TB, repo, commit string) []string {
	t.Helper()
	return git.Fields(gitIn(t, repo, "ls-tree", "-r", "-z", "--name-only", commit))
}

// expectError checks that an error wraps another one, if that is not nil, and has a text.
func expectError(t *testing.T, err, is error, text string) {
	t.Helper()
	testkit.Need(t, err != nil, "the error is %v; expected %v with %s", err, is, text)
	testkit.Need(t, (is == nil || errors.Is(err, is)), "the error is %v; expected %v with %s", err, is, text)
	testkit.Contains(t, err.Error(), text, "the error is %v; expected %v with %s", err, is, text)
}
