package worktree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	repo := newRepo(t)
	base := gitIn(t, repo, "rev-parse", "main")
	k, _ := newKeeper(t)
	done := testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)).Must(t)
	want := Made{RepoID: "r1", Path: filepath.Join(k.dir, attemptID, "web"), Base: base}
	testkit.Need(t, len(done) == 1 && done[0] == want, "made %+v, want %+v", done, want)
	testkit.Equal(t, read(t, want.Path, "lib/b.txt"), "bee\n", "the worktree")
	testkit.Equal(t, gitIn(t, want.Path, "status", "--porcelain", "--branch"), "## "+branchName, "git status")
	again, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)
	testkit.True(t, err == nil && slices.Equal(again, done), "called again: %v, %v", again, err)
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), attemptID, "deepwork/other-1a2b", []Tree{tree(repo)}, nil)).Err(), "", "an attempt was given other worktrees while it has some")
	testkit.Equal(t, remove(t, k), (Rescue{}), "of a clean worktree was kept")
	testkit.Equal(t, gitIn(t, repo, "for-each-ref", "--format=%(refname)"), "refs/heads/main", "refs are left")
	sound(t, repo, 0)
	if kept, _, err := k.Remove(t.Context(), attemptID, false, nil); kept != nil || err != nil {
		t.Errorf("removed again: %v, %v", kept, err)
	}
}

// dirty makes a checkout as untidy as people leave theirs.
func dirty(t *testing.T, repo string) {
	write(t, repo, "a.txt", "stashed\n")
	gitIn(t, repo, "stash", "-q")
	write(t, repo, "a.txt", "one\nstaged\n")
	gitIn(t, repo, "add", "a.txt")
	write(t, repo, "a.txt", "one\nunstaged\n")
	write(t, repo, "untracked", "x")
	write(t, repo, ".env", "SECRET=1")
	gitIn(t, repo, "config", "user.nickname", "x")
}

func TestTheMainCheckoutIsNeverTouchedNorAReasonToRefuse(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	dirty(t, repo)
	for _, hook := range []string{"post-checkout", "pre-commit", "reference-transaction", "post-index-change"} {
		write(t, repo, ".git/hooks/"+hook, "#!/bin/sh\ntouch \"$(git rev-parse --git-common-dir)/hook-ran\"\nexit 1\n")
		must(t, os.Chmod(filepath.Join(repo, ".git/hooks", hook), 0o755))
	}
	before := digest(t, repo)
	k, _ := newKeeper(t)
	path := create(t, k, repo)
	write(t, path, "new", "work")
	testkit.Works(t, testkit.Get(k.Status(t.Context(), path, "", "main")).Err())
	if _, _, err := k.Diff(t.Context(), path, "", "main", nil, 0); err != nil {
		t.Error(err)
	}
	r := remove(t, k)
	testkit.True(t, r.Ref != "", "nothing was kept")
	testkit.Equal(t, digest(t, repo), before, "the main checkout changed: %s", gitIn(t, repo, "status", "--short"))
	sound(t, repo, 0)
}

func TestRepositoriesOfAllKinds(t *testing.T) {
	t.Parallel()
	bare := filepath.Join(t.TempDir(), "bare.git")
	repo := newRepo(t)
	gitIn(t, repo, "clone", "-q", "--bare", repo, bare)
	linked := filepath.Join(t.TempDir(), "linked")
	gitIn(t, repo, "worktree", "add", "-q", "-b", "side", linked)
	for name, path := range map[string]string{"bare": bare, "a folder inside": filepath.Join(repo, "lib"), "the git folder": filepath.Join(repo, ".git"), "a linked worktree": linked} {
		t.Run(name, func(t *testing.T) {
			k, _ := newKeeper(t)
			must(t, CheckRepo(t.Context(), path, "main"))
			at := create(t, k, path)
			testkit.Equal(t, read(t, at, "lib/b.txt"), "bee\n", "the worktree is not of the whole repository")
			write(t, at, "x", "kept")
			testkit.Equal(t, show(t, path, remove(t, k).Commit, "x"), "kept", "work is lost")
		})
	}
}

func TestWhatIsNoRepositoryOrBranchIsSaid(t *testing.T) {
	t.Parallel()
	k, _ := newKeeper(t)
	repo, plain, unborn := newRepo(t), t.TempDir(), t.TempDir()
	gitIn(t, unborn, "init", "-q")
	write(t, plain, "file", "")
	gitIn(t, repo, "tag", "v1")
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
		t.Run(name, func(t *testing.T) {
			err := CheckRepo(t.Context(), c.repo, c.branch)
			testkit.True(t, errors.Is(err, c.want) && strings.Contains(err.Error(), c.says), "CheckRepo: %v", err)
			good, bad := tree(repo), Tree{RepoID: "r2", Name: "bad", Repo: c.repo, TargetBranch: c.branch}
			testkit.FailsWith(t, testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{good, bad}, nil)).Err(), c.want, "Create")
			nothingLeft(t, k)
			sound(t, repo, 0)
		})
	}
}

func TestBranchThatExistsIsRefusedAndStays(t *testing.T) {
	t.Parallel()
	k, _ := newKeeper(t)
	repo := newRepo(t)
	gitIn(t, repo, "branch", branchName)
	testkit.FailsWith(t, testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)).Err(), ErrBranchTaken)
	gitIn(t, repo, "rev-parse", "--verify", branchName)
	nothingLeft(t, k)
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), attemptID, "deepwork/a..b", []Tree{tree(repo)}, nil)).Err(), "not a valid branch name")
	nothingLeft(t, k)
	sound(t, repo, 0)
}

func TestTwoReposOfOneAttemptThatAreOne(t *testing.T) {
	t.Parallel()
	k, _ := newKeeper(t)
	repo := newRepo(t)
	trees := []Tree{tree(repo), {RepoID: "r2", Name: "api", Repo: filepath.Join(repo, "lib"), TargetBranch: "main"}}
	done := testkit.Get(k.Create(t.Context(), attemptID, branchName, trees, nil)).Must(t)
	for _, m := range done {
		write(t, m.Path, "work", m.Path)
	}
	write(t, filepath.Dir(done[0].Path), "NOTES.md", "beside them")
	kept, _, err := k.Remove(t.Context(), attemptID, false, nil)
	testkit.Need(t, err == nil && len(kept) == 3, "kept %+v, %v", kept, err)
	for i, suffix := range []string{"", "-2", "-3"} {
		testkit.Equal(t, kept[i].Ref, "refs/deepwork/rescue/"+attemptID+suffix, "ref %d", i)
		testkit.Equal(t, gitIn(t, repo, "rev-parse", kept[i].Ref), kept[i].Commit, "%s is not the commit that was told", kept[i].Ref)
	}
	for i, m := range done {
		testkit.Equal(t, show(t, repo, kept[i].Commit, "work"), m.Path, "the work of two worktrees is mixed up")
	}
	testkit.Equal(t, show(t, repo, kept[2].Commit, "NOTES.md"), "beside them", "what lay beside the worktrees is lost")
	nothingLeft(t, k)
	sound(t, repo, 0)
}

func TestSetupRunsInTheWorktreeWithItsEnvironment(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a Unix shell")
	}
	k, _ := newKeeper(t)
	repo := newRepo(t)
	tr := tree(repo)
	tr.Setup = []string{"sh", "-c", `pwd >where.log; echo "$KEY" >key.log; git rev-parse --show-toplevel >top.log`}
	done := testkit.Get(k.Create(t.Context(), attemptID, branchName, []Tree{tr}, []string{"KEY=value"})).Must(t)
	real, _ := filepath.EvalSymlinks(done[0].Path)
	got := strings.TrimSpace(read(t, done[0].Path, "where.log"))
	testkit.True(t, got == real || got == done[0].Path, "it ran in %s", got)
	testkit.Equal(t, read(t, done[0].Path, "key.log"), "value\n", "KEY")
	testkit.Equal(t, strings.TrimSpace(read(t, done[0].Path, "top.log")), real, "git is at work in")
}

func TestFailedSetupIsUndoneAndTold(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a Unix shell")
	}
	k, _ := newKeeper(t)
	first, second := newRepo(t), newRepo(t)
	tr := Tree{RepoID: "r2", Name: "api", Repo: second, TargetBranch: "main", Setup: []string{"sh", "-c", "touch half-done; echo no luck >&2; exit 7"}}
	_, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(first), tr}, nil)
	p, ok := errors.AsType[*process.Error](err)
	testkit.True(t, errors.Is(err, ErrSetup) && ok && p.ExitCode == 7, "got %v", err)
	testkit.ContainsAll(t, fmt.Sprint(err), []string{"no luck", "exit code 7", "api"}, "the message")
	nothingLeft(t, k)
	for _, repo := range []string{first, second} {
		sound(t, repo, 0)
		testkit.Equal(t, gitIn(t, repo, "for-each-ref", "--format=%(refname)"), "refs/heads/main", "refs are left")
	}
}

func TestCancelledCreateIsUndone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the command is for a Unix shell")
	}
	k, _ := newKeeper(t)
	repo := newRepo(t)
	tr := tree(repo)
	tr.Setup = []string{"sh", "-c", "sleep 1000"}
	ctx, cancel := context.WithCancel(t.Context())
	k.at = func(point string) {
		if point == "copied web" {
			cancel()
		}
	}
	testkit.FailsWith(t, testkit.Get(k.Create(ctx, attemptID, branchName, []Tree{tr}, nil)).Err(), context.Canceled)
	nothingLeft(t, k)
	sound(t, repo, 0)
}

// Git fails over a worktree that another program is making at that moment; one
// that stays as it is, is told of.
func TestWorktreesThatOthersMakeAreWaitedFor(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	gitIn(t, repo, "worktree", "add", "-q", "--detach", filepath.Join(t.TempDir(), "other"))
	k, _ := newKeeper(t)
	half := filepath.Join(repo, ".git", "worktrees", "other", "commondir")
	must(t, os.Truncate(half, 0))
	made := time.AfterFunc(time.Second, func() { os.WriteFile(half, []byte("../..\n"), 0o600) })
	if _, err := k.Create(t.Context(), "attempt-1", "deepwork/x-0001", []Tree{tree(repo)}, nil); err != nil || made.Stop() {
		t.Errorf("it did not wait: %v", err)
	}
	must(t, os.Truncate(half, 0))
	testkit.Fails(t, testkit.Get(k.Create(t.Context(), "attempt-2", "deepwork/x-0002", []Tree{tree(repo)}, nil)).Err(), "commondir", "one that is broken for good")
}

func TestBranches(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	for _, b := range []string{"zeta", "alpha", "feature/x"} {
		gitIn(t, repo, "branch", b)
	}
	got, err := Branches(t.Context(), filepath.Join(repo, "lib"))
	if want := []string{"main", "alpha", "feature/x", "zeta"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	gitIn(t, repo, "checkout", "-q", "--detach")
	got, err = Branches(t.Context(), repo)
	if want := []string{"alpha", "feature/x", "main", "zeta"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("detached: got %v, %v, want %v", got, err, want)
	}
}

func TestBranchForIsALegalRef(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`^deepwork/[a-z0-9](-?[a-z0-9]){0,31}-[0-9a-f]{4}$`)
	seen := map[string]bool{}
	for title, slug := range map[string]string{
		"Fix the login page": "fix-the-login-page", "": "task", "日本語": "task", "...--..": "task", "a..b~^:?*[\\ @{c": "a-b-c",
		"refs/heads/x.lock": "refs-heads-x-lock", strings.Repeat("word ", 30): "word-word-word-word-word-word-wo",
		strings.Repeat("x", 100): strings.Repeat("x", 32), "Ärger mit Öl": "rger-mit-l", "HEAD": "head",
	} {
		b := BranchFor("deepwork/", title)
		testkit.True(t, legal.MatchString(b) && strings.HasPrefix(b, "deepwork/"+slug+"-"), "BranchFor(%q) = %q", title, b)
		gitIn(t, ".", "check-ref-format", "--branch", b)
	}
	for range 50 {
		seen[BranchFor("deepwork/", "same")] = true
	}
	testkit.True(t, len(seen) >= 25, "the same title gives the same branch again and again")
}

const journaledAttempt = "3b241101-e2bb-4255-8caf-4136c566a962"

func journalText(tree string) string {
	return `{"version":2,"attempt":"` + journaledAttempt + `","branch":"deepwork/a-0001","phase":"made","trees":[` + tree + `],"board":"b"}`
}

const wholeTree = `{"repo_id":"r","name":"web","repo":"/p/web","target_branch":"main","git_dir":"/p/web/.git","branch":"b","base":"","begun":true}`

// A journal that is damaged is told, and nothing is done by it.
func TestDamagedJournals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the paths in the texts are no absolute ones there")
	}
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
		if j, err := parseJournal("/p/w", journaledAttempt, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", text, j, err, want)
		}
	}
	// Recovery passes it by, and says which file it is.
	k, _ := newKeeper(t)
	path := k.journalPath(journaledAttempt)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(journalText(`null`)), 0o600))
	did, err := k.Recover(t.Context(), func(string) bool { return false })
	testkit.True(t, err != nil && strings.Contains(err.Error(), path) && len(did) == 0, "%v, %v", did, err)
	testkit.Works(t, testkit.Get(os.Stat(path)).Err())
}

// Whatever a journal's file holds, what is taken from it is whole, and is written as
// it was read.
func FuzzJournal(f *testing.F) {
	for _, tree := range []string{wholeTree, wholeTree + "," + wholeTree, `null`, `{}`, `{"name":"x","git_dir":"/","begun":true}`, `[]`} {
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
	gitIn(t, origin, "config", "uploadpack.allowFilter", "true")
	gitIn(t, origin, "config", "uploadpack.allowAnySHA1InWant", "true")
	gitIn(t, origin, "checkout", "-q", "-b", "other")
	write(t, origin, "a.txt", "other\n")
	commit(t, origin, "other")
	gitIn(t, origin, "checkout", "-q", "main")
	for name, fetch := range map[string]func(repo string) error{
		"a worktree": func(repo string) error {
			k, _ := newKeeper(t)
			at := tree(repo)
			at.TargetBranch = "other"
			made, err := k.Create(t.Context(), attemptID, branchName, []Tree{at}, nil)
			if err != nil {
				nothingLeft(t, k)
			} else if read(t, made[0].Path, "a.txt") != "other\n" {
				t.Error("the file is another one")
			}
			return err
		},
		"a file": func(repo string) error {
			_, err := git.Output(t.Context(), git.Command{Dir: repo, Args: []string{"cat-file", "blob", "other:a.txt"}})
			return err
		},
	} {
		repo := filepath.Join(top, name)
		gitIn(t, top, "clone", "-q", "-c", "gc.auto=0", "-c", "maintenance.auto=false", "--filter=blob:none", "file://"+filepath.ToSlash(origin), repo)
		gitIn(t, repo, "branch", "-q", "other", "origin/other")
		err := fetch(repo)
		if err == nil {
			t.Errorf("%s: it was fetched", name)
			continue
		}
		expectError(t, err, nil, "is a partial clone")
		follow(t, err, "them: ", "\n")
		testkit.Works(t, fetch(repo), "%s, after the command", name)
	}
}

// A repository of another user is not said to be none, and the command in the error lets git use it.
func TestField12_RepositoryOfAnotherUser(t *testing.T) {
	repo := newRepo(t)
	t.Setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
	err := CheckRepo(t.Context(), repo, "main")
	testkit.Need(t, err != nil && !errors.Is(err, ErrNotRepo), "the error is %v", err)
	expectError(t, err, nil, "git config --global --add safe.directory \""+repo)
	asUser(t, "")
	follow(t, err, "you trust it: ", "\n")
	testkit.Works(t, CheckRepo(t.Context(), repo, "main"), "after the command")
}
