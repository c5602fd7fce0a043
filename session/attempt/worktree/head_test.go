package worktree

import (
	"cmp"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"

	"deepwork/session/git"
)

// old makes a commit on main that is older than every attempt, on the branch develop.
func old(t *testing.T, repo string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "commit")
	const who = " Una <una@example.com> 1000000000 +0000\n"
	write(t, filepath.Dir(file), "commit", "tree "+gitIn(t, repo, "rev-parse", "main^{tree}")+"\nparent "+gitIn(t, repo, "rev-parse", "main")+"\nauthor"+who+"committer"+who+"\nold\n")
	gitIn(t, repo, "branch", "develop", gitIn(t, repo, "hash-object", "-t", "commit", "-w", file))
}

// follow runs the command in a message that begins after a text, as a person does.
func follow(t *testing.T, err error, after, until string) {
	t.Helper()
	_, command, found := strings.Cut(err.Error(), after)
	command, _, _ = strings.Cut(command, until)
	run := exec.Command("sh", "-c", command)
	run.Env = git.Environ()
	if out, err := run.CombinedOutput(); !found || err != nil {
		t.Errorf("%q: %v\n%s", command, err, out)
	}
}

// Commits that an agent made elsewhere than on the attempt's branch are merged and pushed, or refused with
// a command that helps.
func TestField04_CommitsElsewhere(t *testing.T) {
	t.Parallel()
	const empty = "commit -q --allow-empty -m "
	for name, c := range map[string]struct {
		steps   []string // git commands in the worktree, or after an @ in the user's checkout
		refused string   // "" means that the commits are adopted
		follow  string   // what is before the command that helps
	}{
		"a branch of its own":       {steps: []string{"checkout -q -b mine"}},
		"a detached HEAD":           {steps: []string{"checkout -q --detach"}},
		"a branch on a branch":      {steps: []string{"checkout -q -b one", empty + "one", "checkout -q -b two"}},
		"a renamed branch":          {steps: []string{"branch -m mine"}},
		"a branch like a tag":       {steps: []string{"tag mine", "checkout -q -b mine"}},
		"with the target in it":     {steps: []string{"@merge -q --ff-only develop", "@" + empty + "new", "checkout -q -b mine", "merge -q main"}},
		"commits on both":           {steps: []string{empty + "own", "checkout -q -b mine main"}, refused: "lacks commits", follow: "This adds them: "},
		"a branch of the user":      {steps: []string{"checkout -q develop"}, refused: "from before the attempt", follow: "to the attempt's branch: "},
		"its branch used elsewhere": {steps: []string{"checkout -q -b mine", "@worktree add -q ../other " + branchName}, refused: "is checked out in", follow: "This frees it: "},
		"a branch of its own past":  {steps: []string{"checkout -q --orphan mine"}, refused: "lacks commits", follow: "This adds them: "},
		"a bisect":                  {steps: []string{empty + "one", empty + "two", empty + "three", "bisect start HEAD main"}, refused: "bisect reset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, remote := newRepo(t), filepath.Join(t.TempDir(), "remote.git")
			gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
			gitIn(t, repo, "remote", "add", "origin", remote)
			old(t, repo)
			k, _ := newKeeper(t)
			path := create(t, k, repo)
			for _, step := range c.steps {
				if at, is := strings.CutPrefix(step, "@"); is {
					gitIn(t, repo, strings.Fields(at)...)
				} else {
					gitIn(t, path, strings.Fields(step)...)
				}
			}
			if name != "a bisect" {
				write(t, path, "new.txt", "")
				commit(t, path, "the work")
			}
			before, branch, head := digest(t, repo), tip(repo, branchName), tip(path, "HEAD")
			st, err := k.Status(t.Context(), path, "", "main")
			testkit.True(t, err == nil && st.Elsewhere != "", "the status is %+v, %v", st, err)
			pushed, err := k.Push(t.Context(), path, "origin", false)
			if c.refused == "" {
				testkit.Need(t, err == nil && pushed.Adopted == st.Elsewhere && tip(remote, branchName) == head && tip(path, "HEAD") == head, "pushed %+v, %v", pushed, err)
				testkit.True(t, name != "a branch of its own" || tip(repo, "mine") == head, "the agent's branch is gone")
				clean(t, path)
				got := testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
				testkit.True(t, show(t, repo, "main", "new.txt") == "", "merged %+v", got)
				return
			}
			expectError(t, err, nil, c.refused)
			_, err = k.Merge(t.Context(), landing(path, WayMerge))
			expectError(t, err, nil, c.refused)
			testkit.True(t, tip(repo, branchName) == branch && tip(path, "HEAD") == head && tip(remote, branchName) == "", "a refused call has changed something")
			testkit.Equal(t, digest(t, repo), before, "the user's checkout was touched")
			if c.follow != "" {
				follow(t, err, c.follow, ";")
				if _, err := k.Push(t.Context(), path, "origin", false); err != nil || tip(remote, branchName) != tip(path, "HEAD") {
					t.Errorf("after the command: %v", err)
				}
				gitIn(t, path, "merge-base", "--is-ancestor", head, branchName)
				gitIn(t, path, "merge-base", "--is-ancestor", cmp.Or(branch, head), branchName)
			}
		})
	}
}

// What a worktree lacks is brought back by the command in the refusal.
func TestField04_LostWorktrees(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ step, refused, follow string }{
		"moved":                      {"worktree move PATH PATH-elsewhere", "no git worktree in this folder", "this moves it back: "},
		"removed":                    {"worktree remove PATH", "no git worktree in this folder", "was not committed: "},
		"removed and checked out":    {"worktree remove PATH;checkout -q " + branchName, "no git worktree in this folder", "was not committed: "},
		"on a branch with no commit": {"-C PATH checkout -q --orphan none", "has no commit", "to the attempt's branch: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := newRepo(t)
			k, path := attemptIn(t, repo)
			head := tip(path, "HEAD")
			for step := range strings.SplitSeq(c.step, ";") {
				gitIn(t, repo, strings.Fields(strings.ReplaceAll(step, "PATH", path))...)
			}
			_, err := k.Push(t.Context(), path, "origin", false)
			expectError(t, err, nil, c.refused)
			follow(t, err, c.follow, "\n")
			if now, err := tip(path, "HEAD"), k.Check(attemptID, attemptID, []string{path}); now != head || err != nil {
				t.Errorf("it is at %q, expected %s (%v)", now, head, err)
			}
			clean(t, path)
		})
	}
}

func tip(dir, ref string) string {
	out, _ := tryGit(dir, "rev-parse", "--verify", "--quiet", ref)
	return out
}

// A commit of a submodule that only the worktree has is named before it is merged or pushed, with the
// command that publishes it.
func TestField04_Submodules(t *testing.T) {
	t.Parallel()
	sub, repo, remote := newRepo(t), newRepo(t), filepath.Join(t.TempDir(), "remote.git")
	gitIn(t, sub, "config", "receive.denyCurrentBranch", "ignore")
	gitIn(t, repo, "submodule", "--quiet", "add", sub, "sub")
	commit(t, repo, "submodule")
	gitIn(t, repo, "clone", "-q", "--bare", repo, remote)
	gitIn(t, repo, "remote", "add", "origin", remote)
	k, path := attemptIn(t, repo)
	gitIn(t, path, "submodule", "--quiet", "update", "--init")
	inside := filepath.Join(path, "sub")
	write(t, inside, "a.txt", "newer\n")
	id := commit(t, inside, "newer")
	push := func() error { _, err := k.Push(t.Context(), path, "origin", false); return err }
	merge := func() error { _, err := k.Merge(t.Context(), landing(path, WayMerge)); return err }
	for _, err := range []error{push(), merge()} {
		if dirty, is := errors.AsType[*DirtyError](err); !is || dirty.Files[0] != "sub" {
			t.Fatalf("a commit that only the submodule has: %v", err)
		}
	}
	commit(t, path, "newer submodule")
	expectError(t, push(), ErrUnpublished, "push origin "+id)
	err := merge()
	expectError(t, err, ErrUnpublished, "push origin "+id)
	testkit.True(t, tip(remote, branchName) == "" && tip(repo, "main") == tip(remote, "main"), "it was pushed or merged")
	follow(t, err, "This publishes it: ", "\n")
	if err := errors.Join(push(), merge()); err != nil || tip(remote, branchName+":sub") != id || tip(repo, "main:sub") != id {
		t.Errorf("after the command: %v", err)
	}
}
