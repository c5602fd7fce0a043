package worktree

import (
	"context"
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
)

func TestCreateAndRemove(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	base := gitIn(t, repo, "rev-parse", "main")
	k, _ := newKeeper(t)
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)
	must(t, err)
	want := Made{RepoID: "r1", Path: filepath.Join(k.dir, attemptID, "web"), Base: base}
	if len(done) != 1 || done[0] != want {
		t.Fatalf("made %+v, want %+v", done, want)
	}
	if got := read(t, want.Path, "lib/b.txt"); got != "bee\n" {
		t.Errorf("the worktree has %q", got)
	}
	if out := gitIn(t, want.Path, "status", "--porcelain", "--branch"); out != "## "+branchName {
		t.Errorf("git status says %q", out)
	}
	again, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil)
	if err != nil || !slices.Equal(again, done) {
		t.Errorf("called again: %v, %v", again, err)
	}
	if _, err := k.Create(t.Context(), attemptID, "deepwork/other-1a2b", []Tree{tree(repo)}, nil); err == nil {
		t.Error("an attempt was given other worktrees while it has some")
	}
	if r := remove(t, k); r != (Rescue{}) {
		t.Errorf("of a clean worktree was kept: %+v", r)
	}
	if out := gitIn(t, repo, "for-each-ref", "--format=%(refname)"); out != "refs/heads/main" {
		t.Errorf("refs are left: %s", out)
	}
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
	if _, err := k.Status(t.Context(), path, "", "main"); err != nil {
		t.Error(err)
	}
	if _, _, err := k.Diff(t.Context(), path, "", "main", nil, 0); err != nil {
		t.Error(err)
	}
	if r := remove(t, k); r.Ref == "" {
		t.Error("nothing was kept")
	}
	if after := digest(t, repo); after != before {
		t.Errorf("the main checkout changed:\n%s", gitIn(t, repo, "status", "--short"))
	}
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
			if read(t, at, "lib/b.txt") != "bee\n" {
				t.Error("the worktree is not of the whole repository")
			}
			write(t, at, "x", "kept")
			if r := remove(t, k); show(t, path, r.Commit, "x") != "kept" {
				t.Error("work is lost")
			}
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
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("CheckRepo: %v", err)
			}
			good, bad := tree(repo), Tree{RepoID: "r2", Name: "bad", Repo: c.repo, TargetBranch: c.branch}
			if _, err := k.Create(t.Context(), attemptID, branchName, []Tree{good, bad}, nil); !errors.Is(err, c.want) {
				t.Errorf("Create: %v", err)
			}
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
	if _, err := k.Create(t.Context(), attemptID, branchName, []Tree{tree(repo)}, nil); !errors.Is(err, ErrBranchTaken) {
		t.Errorf("got %v", err)
	}
	gitIn(t, repo, "rev-parse", "--verify", branchName)
	nothingLeft(t, k)
	if _, err := k.Create(t.Context(), attemptID, "deepwork/a..b", []Tree{tree(repo)}, nil); err == nil || !strings.Contains(err.Error(), "not a valid branch name") {
		t.Errorf("got %v", err)
	}
	nothingLeft(t, k)
	sound(t, repo, 0)
}

func TestTwoReposOfOneAttemptThatAreOne(t *testing.T) {
	t.Parallel()
	k, _ := newKeeper(t)
	repo := newRepo(t)
	trees := []Tree{tree(repo), {RepoID: "r2", Name: "api", Repo: filepath.Join(repo, "lib"), TargetBranch: "main"}}
	done, err := k.Create(t.Context(), attemptID, branchName, trees, nil)
	must(t, err)
	for _, m := range done {
		write(t, m.Path, "work", m.Path)
	}
	write(t, filepath.Dir(done[0].Path), "NOTES.md", "beside them")
	kept, _, err := k.Remove(t.Context(), attemptID, false, nil)
	if err != nil || len(kept) != 3 {
		t.Fatalf("kept %+v, %v", kept, err)
	}
	for i, suffix := range []string{"", "-2", "-3"} {
		if kept[i].Ref != "refs/deepwork/rescue/"+attemptID+suffix {
			t.Errorf("ref %d is %s", i, kept[i].Ref)
		}
		if gitIn(t, repo, "rev-parse", kept[i].Ref) != kept[i].Commit {
			t.Errorf("%s is not the commit that was told", kept[i].Ref)
		}
	}
	for i, m := range done {
		if show(t, repo, kept[i].Commit, "work") != m.Path {
			t.Error("the work of two worktrees is mixed up")
		}
	}
	if show(t, repo, kept[2].Commit, "NOTES.md") != "beside them" {
		t.Error("what lay beside the worktrees is lost")
	}
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
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tr}, []string{"KEY=value"})
	must(t, err)
	real, _ := filepath.EvalSymlinks(done[0].Path)
	if got := strings.TrimSpace(read(t, done[0].Path, "where.log")); got != real && got != done[0].Path {
		t.Errorf("it ran in %s", got)
	}
	if got := read(t, done[0].Path, "key.log"); got != "value\n" {
		t.Errorf("KEY is %q", got)
	}
	if got := strings.TrimSpace(read(t, done[0].Path, "top.log")); got != real {
		t.Errorf("git is at work in %s", got)
	}
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
	if !errors.Is(err, ErrSetup) || !ok || p.ExitCode != 7 {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"no luck", "exit code 7", "api"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the message lacks %q: %v", want, err)
		}
	}
	nothingLeft(t, k)
	for _, repo := range []string{first, second} {
		sound(t, repo, 0)
		if out := gitIn(t, repo, "for-each-ref", "--format=%(refname)"); out != "refs/heads/main" {
			t.Errorf("refs are left: %s", out)
		}
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
	if _, err := k.Create(ctx, attemptID, branchName, []Tree{tr}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
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
	if _, err := k.Create(t.Context(), "attempt-2", "deepwork/x-0002", []Tree{tree(repo)}, nil); err == nil || !strings.Contains(err.Error(), "commondir") {
		t.Errorf("one that is broken for good: %v", err)
	}
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
	legal := regexp.MustCompile(`^deepwork/[a-z0-9](-?[a-z0-9]){0,39}-[0-9a-f]{4}$`)
	seen := map[string]bool{}
	for title, slug := range map[string]string{
		"Fix the login page": "fix-the-login-page", "": "task", "日本語": "task", "...--..": "task", "a..b~^:?*[\\ @{c": "a-b-c",
		"refs/heads/x.lock": "refs-heads-x-lock", strings.Repeat("word ", 30): "word-word-word-word-word-word-word-word",
		strings.Repeat("x", 100): strings.Repeat("x", 40), "Ärger mit Öl": "rger-mit-l", "HEAD": "head",
	} {
		b := BranchFor("deepwork/", title)
		if !legal.MatchString(b) || !strings.HasPrefix(b, "deepwork/"+slug+"-") {
			t.Errorf("BranchFor(%q) = %q", title, b)
		}
		gitIn(t, ".", "check-ref-format", "--branch", b)
	}
	for range 50 {
		seen[BranchFor("deepwork/", "same")] = true
	}
	if len(seen) < 25 {
		t.Error("the same title gives the same branch again and again")
	}
}
