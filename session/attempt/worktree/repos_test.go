package worktree

import (
	"errors"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"

	"deepwork/session/git"
)

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
	if err == nil || errors.Is(err, ErrNotRepo) {
		t.Fatalf("the error is %v", err)
	}
	expectError(t, err, nil, "git config --global --add safe.directory \""+repo)
	asUser(t, "")
	follow(t, err, "you trust it: ", "\n")
	testkit.Works(t, CheckRepo(t.Context(), repo, "main"), "after the command")
}
