package worktree

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/session/git"
)

func TestCreateAndRemove(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	done := makes(t, k, tree(repo))
	want := Made{RepoID: "r1", Path: filepath.Join(k.dir, attemptID, "web"), Base: tip(repo, "main")}
	testkit.Same(t, done, []Made{want})
	reads(t, want.Path, "lib/b.txt", "bee\n")
	testkit.Equal(t, gitIn(t, want.Path, "status", "--porcelain", "--branch"), "## "+branchName, "git status")
	testkit.Same(t, makes(t, k, tree(repo)), done, "called again")

	// What the config says of copies and setup counts while worktrees are made.
	edited := tree(repo, "a.txt")
	edited.Setup = []string{"false"}
	write(t, want.Path, "a.txt", "work")
	testkit.Same(t, makes(t, k, edited), done, "called again after the config was edited")
	reads(t, want.Path, "a.txt", "work")
	gits(t, want.Path, "restore a.txt")
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), attemptID, "deepwork/other-1a2b", []Tree{tree(repo)}, nil)).
		Err(), "", "an attempt was given other worktrees while it has some")
	testkit.Equal(t, remove(t, k).Ref+refs(t, repo, "refs"), "refs/heads/main",
		"a clean worktree was kept, or refs are left")

	sound(t, repo, 0)
	testkit.Equal(t, remove(t, k), (Rescue{}), "removed again")
}

func TestTheMainCheckoutIsNeverTouchedNorAReasonToRefuse(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	// It is as untidy as people leave theirs.
	write(t, repo, "a.txt", "stashed\n")
	gits(t, repo, "stash -q", "config user.nickname x")
	write(t, repo, "a.txt", "one\nstaged\n")
	gits(t, repo, "add a.txt")
	write(t, repo, "a.txt", "one\nunstaged\n", "untracked", "x", ".env", "SECRET=1")
	for _, hook := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change"} {
		executable(t, filepath.Join(repo, ".git", "hooks", hook),
			"#!/bin/sh\ntouch \"$(git rev-parse --git-common-dir)/hook-ran\"\nexit 1\n")
	}
	before, path := digest(t, repo), create(t, k, repo)
	write(t, path, "new", "work")
	_, _, err := k.Diff(t.Context(), path, "", "main", nil, 0)
	testkit.Works(t, errors.Join(err, testkit.Get(k.Status(t.Context(), path, "", "main")).Err()))
	testkit.True(t, remove(t, k).Ref != "", "nothing was kept")
	testkit.Equal(t, digest(t, repo), before, "the main checkout changed: %s", gitIn(t, repo, "status", "--short"))
	sound(t, repo, 0)
}

func TestRepositoriesOfAllKinds(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	linked := filepath.Join(t.TempDir(), "linked")
	sha256 := filepath.Join(t.TempDir(), "sha256")
	gits(t, repo, "worktree add -q -b side "+linked)
	kinds := map[string]string{
		"bare":              remoteOf(t, repo),
		"a folder inside":   filepath.Join(repo, "lib"),
		"the git folder":    filepath.Join(repo, ".git"),
		"a linked worktree": linked,
	}

	// which an old git has not
	if _, err := tryGit(".", "init", "-q", "-b", "main", "--object-format=sha256", sha256); err == nil {
		commit(t, sha256, "first", "a.txt", "a", "lib/b.txt", "bee\n")
		kinds["sha256"] = sha256
	}

	for name, path := range kinds {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t)
			must(t, CheckRepo(t.Context(), path, "main"))
			at := create(t, k, path)
			reads(t, at, "lib/b.txt", "bee\n")
			write(t, at, "lib/b.txt", "changed", "x", "kept")
			must(t, os.Remove(filepath.Join(at, "a.txt")))
			testkit.Same(t, testkit.Get(k.Status(t.Context(), at, tip(at, "HEAD"), "")).Must(t).Changed,
				[]string{"a.txt", "lib/b.txt", "x"}, "status")

			kept := remove(t, k).Commit
			holds(t, path, kept, "lib/b.txt", "changed", "x", "kept")
			testkit.True(t, !slices.Contains(files(t, path, kept), "a.txt"), "a file that was removed is kept")
		})
	}
	if kinds["sha256"] != "" {
		sound(t, sha256, 0)
	}
}

func TestWhatIsNoRepositoryOrBranchIsSaid(t *testing.T) {
	t.Parallel()
	k := newKeeper(t)
	repo := newRepo(t)
	plain := t.TempDir()
	unborn := t.TempDir()
	gits(t, unborn, "init -q")
	write(t, plain, "file", "")
	gits(t, repo, "tag v1", "branch "+branchName+"-taken")
	for name, c := range map[string]struct {
		repo, branch string
		want         error
		says         string
	}{
		"missing":     {filepath.Join(plain, "none"), "main", ErrNotRepo, "none"},
		"a file":      {filepath.Join(plain, "file"), "main", ErrNotRepo, "is a file"},
		"no repo":     {plain, "main", ErrNotRepo, plain},
		"unborn":      {unborn, "main", ErrNoBranch, `"main"`},
		"no branch":   {repo, "mian", ErrNoBranch, `"mian"`},
		"empty":       {repo, "", ErrNoBranch, `""`},
		"a tag":       {repo, "v1", ErrNoBranch, "v1"},
		"an ancestor": {repo, "main~0", ErrNoBranch, "main~0"},
		"an option":   {repo, "--all", ErrNoBranch, "--all"},
	} {
		expectError(t, CheckRepo(t.Context(), c.repo, c.branch), c.want, c.says)
		testkit.FailsWith(t, notMade(t, k, tree(repo),
			Tree{RepoID: "r2", Name: "bad", Repo: c.repo, TargetBranch: c.branch}), c.want, "%s", name)
		nothingLeft(t, k)
	}
	sound(t, repo, 0)
	// A branch that exists is refused, and stays.
	testkit.FailsWith(t, testkit.Get(k.Create(t.Context(), attemptID, branchName+"-taken", []Tree{tree(repo)}, nil)).
		Err(), ErrBranchTaken)
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), attemptID, "deepwork/a..b", []Tree{tree(repo)}, nil)).Err(),
		"not a valid branch name")
	testkit.Equal(t, refs(t, repo, "refs/heads"), "refs/heads/"+branchName+"-taken\nrefs/heads/main")
	nothingLeft(t, k)
	// One that cannot be read, as after a power cut, is not one that does not exist.
	write(t, repo, ".git/refs/heads/main", "")
	err := CheckRepo(t.Context(), repo, "main")
	testkit.True(t, !errors.Is(err, ErrNoBranch) && strings.Contains(err.Error(), "cannot read refs/heads/main"),
		"%v", err)
}

// Setup runs in the worktree with its environment; where it fails or is cancelled, all is undone and told.
func TestSetup(t *testing.T) {
	t.Parallel()
	needUnix(t)
	k := newKeeper(t)
	first := newRepo(t)
	second := newRepo(t)
	trees := func(script string) []Tree {
		return []Tree{tree(first), {
			RepoID:       "r2",
			Name:         "api",
			Repo:         second,
			TargetBranch: "main",
			Setup:        []string{"sh", "-c", script},
		}}
	}

	undone := func() {
		t.Helper()
		nothingLeft(t, k)
		for _, repo := range []string{first, second} {
			sound(t, repo, 0)
			testkit.Equal(t, refs(t, repo, "refs"), "refs/heads/main", "refs are left")
		}
	}
	err := notMade(t, k, trees("touch half-done; echo no luck >&2; exit 7")...)
	p, ok := errors.AsType[*process.Error](err)
	testkit.Need(t, errors.Is(err, ErrSetup), "got %v", err)
	testkit.Need(t, ok, "got %v", err)
	testkit.Need(t, p.ExitCode == 7, "got %v", err)
	testkit.ContainsAll(t, err.Error(), []string{"no luck", "exit code 7", "api"}, "the message")

	undone()
	ctx, cancel := context.WithCancel(t.Context())
	k.atPoint = func(point string) {
		if point == "copied api" {
			cancel()
		}
	}
	testkit.FailsWith(t, testkit.Get(k.Create(ctx, attemptID, branchName, trees("sleep 1000"), nil)).Err(),
		context.Canceled)

	undone()
	k.atPoint = func(string) {}
	works := trees(`pwd -P >where.log; echo "$KEY" >key.log; git rev-parse --show-toplevel >top.log`)
	path := testkit.Get(k.Create(t.Context(), attemptID, branchName, works, []string{"KEY=value"})).Must(t)[1].Path
	real := testkit.Get(filepath.EvalSymlinks(path)).Must(t)
	reads(t, path, "where.log", real+"\n", "key.log", "value\n", "top.log", real+"\n")
}

// Git fails over a worktree that another program is making at that moment; one that stays as it is, is told of.
func TestWorktreesThatOthersMakeAreWaitedFor(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	gits(t, repo, "worktree add -q --detach "+filepath.Join(t.TempDir(), "other"))
	half := filepath.Join(repo, ".git", "worktrees", "other", "commondir")
	must(t, os.Truncate(half, 0))
	finish := time.AfterFunc(time.Second, func() { os.WriteFile(half, []byte("../..\n"), 0o600) })
	create(t, k, repo)
	testkit.True(t, !finish.Stop(), "it did not wait")
	must(t, os.Truncate(half, 0))
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), "attempt-2", "deepwork/x-0002", []Tree{tree(repo)}, nil)).Err(),
		"commondir", "one that is broken for good")
}

const journaledAttempt = "3b241101-e2bb-4255-8caf-4136c566a962"

func journalText(tree string) string {
	return `{"version":2,"attempt":"` + journaledAttempt + `","branch":"deepwork/a-0001","phase":"made","trees":[` +
		tree + `],"board":"b"}`
}

const wholeTree = `{"repo_id":"r","name":"web","repo":"/p/web","target_branch":"main","git_dir":"/p/web/.git",` +
	`"branch":"b","base":"","begun":true}`

// A journal that is damaged is told, and nothing is done by it.
func TestDamagedJournals(t *testing.T) {
	t.Parallel()
	needUnix(t) // the paths in the texts are no absolute ones elsewhere
	testkit.Get(parseJournal("/p/w", journaledAttempt, []byte(journalText(wholeTree)))).Must(t)
	for text, want := range map[string]string{
		``:                               "is damaged",
		`null`:                           "another version (0)",
		journalText(`null`):              "worktree 0 is null",
		journalText(wholeTree + `,null`): "worktree 1 is null",
		journalText(`{}`):                "must be an absolute path",
		journalText(strings.Replace(wholeTree, "/p/web/.git", "../x", 1)):        "must be an absolute path",
		journalText(strings.Replace(wholeTree, "/p/web/.git", `/p/\u0000`, 1)):   "must be an absolute path",
		journalText(strings.Replace(wholeTree, `"web"`, `"../web"`, 1)):          "cannot be the name",
		journalText(strings.ReplaceAll(wholeTree, "web\"", ".journal/..\"")):     "cannot be the name",
		strings.Replace(journalText(wholeTree), `"made"`, `"maid"`, 1):           `no phase "maid"`,
		strings.Replace(journalText(wholeTree), `"version":2`, `"version":1`, 1): "another version (1)",
		strings.Replace(journalText(wholeTree), `3b24`, `3b25`, 1):               "or attempt",
	} {
		testkit.Fails(t, testkit.Get(parseJournal("/p/w", journaledAttempt, []byte(text))).Err(), want, "%s", text)
	}
}

// Whatever a journal's file holds, what is taken from it is whole, and is written as it was read.
func FuzzJournal(f *testing.F) {
	for _, tree := range []string{wholeTree, wholeTree + "," + wholeTree, `null`, `{}`,
		`{"name":"x","git_dir":"/","begun":true}`, `[]`} {
		f.Add([]byte(journalText(tree)))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := parseJournal("/p/w", journaledAttempt, data)
		if err != nil {
			return
		}
		for _, e := range j.Trees {
			testkit.Need(t, e != nil && filepath.IsAbs(e.Path), "%+v", e)
		}
		text, err := json.Marshal(j)
		if err != nil {
			t.Skip() // a year that JSON cannot write is not ours
		}
		again, err := parseJournal("/p/w", journaledAttempt, text)
		testkit.Need(t, err == nil, "%s: %v", text, err)
		testkit.Equal(t, string(testkit.Get(json.Marshal(again)).Must(t)), string(text), "%s", text)
	})
}

// A partial clone that lacks the files of a branch is called one, and the command in the error fetches them.
func TestField12_PartialClone(t *testing.T) {
	t.Parallel()
	origin, top := newRepo(t), t.TempDir()
	gits(t, origin, "config uploadpack.allowFilter true", "config uploadpack.allowAnySHA1InWant true",
		"checkout -q -b other")
	commit(t, origin, "other", "a.txt", "other\n")
	gits(t, origin, "checkout -q main")
	for name, fetch := range map[string]func(t *testing.T, repo string) error{
		"a worktree": fetchIntoWorktree,
		"a file":     fetchFile,
	} {
		repo := filepath.Join(top, name)
		gitIn(t, top, "clone", "-q", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "--filter=blob:none",
			"file://"+filepath.ToSlash(origin), repo)
		gits(t, repo, "branch -q other origin/other")
		err := fetch(t, repo)
		testkit.Fails(t, err, "is a partial clone")

		follow(t, err, "them: ", "\n")
		testkit.Works(t, fetch(t, repo), "%s, after the command", name)
	}
}

func fetchIntoWorktree(t *testing.T, repo string) error {
	k, at := newKeeper(t), tree(repo)
	at.TargetBranch = "other"
	made, err := k.Create(t.Context(), attemptID, branchName, []Tree{at}, nil)
	if err != nil {
		nothingLeft(t, k)
		return err
	}
	reads(t, made[0].Path, "a.txt", "other\n")
	return nil
}

func fetchFile(t *testing.T, repo string) error {
	_, err := git.Output(t.Context(), git.Command{Dir: repo, Args: []string{"cat-file", "blob", "other:a.txt"}})
	return err
}

// A repository of another user is not said to be none, and the command in the error lets git use it.
func TestField12_RepositoryOfAnotherUser(t *testing.T) {
	repo := newRepo(t)
	t.Setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
	err := CheckRepo(t.Context(), repo, "main")
	testkit.Need(t, err != nil, "%v", err)
	testkit.Need(t, !errors.Is(err, ErrNotRepo), "%v", err)
	testkit.Need(t, strings.Contains(err.Error(), "git config --global --add safe.directory "+repo), "%v", err)

	asUser(t, "")
	follow(t, err, "you trust it: ", "\n")
	testkit.Works(t, CheckRepo(t.Context(), repo, "main"), "after the command")
}

func logged(k *Keeper) *bytes.Buffer {
	var to bytes.Buffer
	k.log = slog.New(slog.NewTextHandler(&to, nil))
	return &to
}

func TestCopiesKeepTheirModesAndAreNotWork(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	write(t, repo, ".env", "SECRET=1", "node_modules/pkg/deep/x.js", "x", "node_modules/pkg/.git/config",
		"not to be copied", "lib/.env", "lib's")
	modes := map[string]os.FileMode{".env": 0o600, "tool.log": 0o755}
	executable(t, filepath.Join(repo, "tool.log"), "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(repo, ".env"), 0o600))
	log := logged(k)
	path := makes(t, k, tree(repo, ".env", "node_modules/", "tool.log", "missing.env"))[0].Path
	reads(t, path, ".env", "SECRET=1", "node_modules/pkg/deep/x.js", "x")
	testkit.True(t, !isThere(filepath.Join(path, "node_modules/pkg/.git")), "a repository's own files were copied")
	testkit.Contains(t, log.String(), "missing.env", "a missing file was not told")
	for name, mode := range modes {
		testkit.True(t, runtime.GOOS == "windows" ||
			testkit.Get(os.Stat(filepath.Join(path, name))).Must(t).Mode().Perm() == mode, "%s has another mode", name)
	}
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed, nil,
		"copies count as changes")
	testkit.Equal(t, remove(t, k).Ref, "", "copies were kept")

	// Of a folder inside.
	reads(t, makes(t, k, tree(filepath.Join(repo, "lib"), ".env"))[0].Path, "lib/.env", "lib's")
}

// An element of the copy list may be a pattern: what it matches is copied, and counts as a copy.
func TestCopyMatchesPatterns(t *testing.T) {
	t.Parallel()
	repo, k := newRepo(t), newKeeper(t)
	commit(t, repo, "tracked", ".env.example", "old", ".gitignore", ".env*\n!.env.example\nlib/*/x\n*.log\n")
	write(t, repo, ".env", "1", ".env.local", "2", ".env.example", "changed", "lib/p/x", "p", "lib/q/x", "q", "lib/q/y",
		"y", "a.log", "a", "[a].log", "itself", "lib/.env", "lib's")
	log := logged(k)
	path := makes(t, k, tree(repo, ".env*", "lib/*/x", "[a].log", ".git*", "none*", "[z"))[0].Path
	reads(t, path, ".env", "1", ".env.local", "2", ".env.example", "old", "lib/p/x", "p", "lib/q/x", "q", "[a].log",
		"itself")
	for _, name := range []string{"a.log", "lib/q/y", "lib/.env"} {
		testkit.True(t, !isThere(filepath.Join(path, name)), "%s was copied", name)
	}
	testkit.ContainsAll(t, log.String(), []string{"none*", "[z"}, "missing files were not told")
	testkit.Same(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Must(t).Changed, nil,
		"copies count as changes")
	testkit.Same(t, testkit.Get(k.load(attemptID)).Must(t).Trees[0].Copy, []string{".env", ".env.local", "lib/p/x",
		"lib/q/x", "[a].log", "none*", "[z"})
	testkit.Equal(t, remove(t, k).Ref, "", "copies were kept")

	// Of a folder inside.
	path = makes(t, k, tree(filepath.Join(repo, "lib"), ".e*"))[0].Path
	reads(t, path, "lib/.env", "lib's")
	testkit.True(t, !isThere(filepath.Join(path, ".env")), "a file above the folder was copied")
}

func TestCopiesNeverLeaveTheRepositoryNorTheWorktree(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a right here")
	}
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	write(t, outside, "secret", "secret")
	for name, c := range map[string]struct{ copy, link, to string }{
		"parent":                  {"../x", "", ""},
		"absolute":                {"/etc/passwd", "", ""},
		"all":                     {".", "", ""},
		"git":                     {".git/config", "", ""},
		"git, another case":       {"lib/../.GIT/config", "", ""},
		"symlink to a file":       {"l", "l", secret},
		"symlink on the way":      {"l/secret", "l", outside},
		"symlink into git":        {"l", "l", ".git/config"},
		"symlink in the worktree": {"out/file", "out", outside},
	} {
		t.Run(name, func(t *testing.T) {
			repo, k := newRepo(t), newKeeper(t)
			if c.link != "" {
				link(t, c.to, filepath.Join(repo, c.link))
			}
			if c.link == "out" { // only there, and not in the checkout
				commit(t, repo, "a symlink")
				must(t, os.Remove(filepath.Join(repo, "out")))
				write(t, repo, "out/file", "must not get out")
			}
			expectError(t, notMade(t, k, tree(repo, c.copy)), ErrOutside, c.copy)
			testkit.True(t, !isThere(filepath.Join(outside, "file")), "it was written outside")
			nothingLeft(t, k)
			sound(t, repo, 0)
		})
	}
	t.Run("harmless symlinks", func(t *testing.T) {
		repo, k := newRepo(t), newKeeper(t)
		write(t, repo, "node_modules/real/x", "x")
		link(t, "../real/x", filepath.Join(repo, "node_modules/.bin/x"))
		link(t, secret, filepath.Join(repo, "node_modules/secret"))
		link(t, "node_modules/real/x", filepath.Join(repo, "my.log"))
		commit(t, repo, "tracked", "tracked", "old")
		write(t, repo, "tracked", "copied over")
		log := logged(k)
		path := makes(t, k, tree(repo, "node_modules", "my.log", "tracked"))[0].Path
		testkit.Equal(t, testkit.Get(os.Readlink(filepath.Join(path, "node_modules/.bin/x"))).Must(t), "../real/x",
			"a symlink inside")
		testkit.True(t, !isThere(filepath.Join(path, "node_modules/secret")), "a symlink that leads outside was copied")
		testkit.Contains(t, log.String(), "leads out")
		reads(t, path, "my.log", "x", "tracked", "copied over")
	})
}
