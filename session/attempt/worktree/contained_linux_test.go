package worktree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/process"
	"deepwork/actor/testkit"
	"deepwork/session/contain"
)

// needContain skips a test where nothing can be contained, or fails it where that must work.
func needContain(t testing.TB) {
	t.Helper()
	_, err := contain.Check(context.Background())
	if _, ok := errors.AsType[*contain.Unavailable](err); ok && os.Getenv("DEEPWORK_TEST_CONTAIN_REQUIRED") == "" {
		t.Skip(err)
	}
	must(t, err)
}

// A jail is a worktree in which a contained agent works.
type jail struct {
	t    testing.TB
	k    *Keeper
	repo string
	path string
	plan *contain.Plan
}

func newJail(t testing.TB) *jail { return jailOf(t, newRepo(t)) }

func jailOf(t testing.TB, repo string) *jail {
	needContain(t)
	j := &jail{t: t, repo: repo, k: New(Options{Dir: filepath.Join(t.TempDir(), "worktrees")})}
	made := testkit.Get(j.k.Create(t.Context(), "a", "work", []Tree{{RepoID: "r", Name: "repo", Repo: j.repo,
		TargetBranch: "main"}}, nil)).Must(t)
	j.path = made[0].Path
	return j
}

// start begins another agent.
func (j *jail) start() {
	j.t.Helper()
	j.plan = testkit.Get(contain.New(j.path)).Must(j.t)
	must(j.t, j.k.Contain(j.t.Context(), j.plan, false, j.path))
}

// try runs a script as the agent does.
func (j *jail) try(script string) (string, error) {
	spec := process.Spec{Command: []string{"/bin/sh", "-ec", script}}
	r, err := j.plan.Run(j.t.Context(), spec, func(contain.Refusal) {})
	return string(r.Stdout) + r.Stderr, err
}

func (j *jail) run(script string) string {
	j.t.Helper()
	out, err := j.try(script)
	testkit.Need(j.t, err == nil, "%s: %v\n%s", script, err, out)
	return out
}

// What scripts begin with: three commits, and two branches that contradict each other.
const (
	commits  = "for i in 1 2 3; do echo $i >f; git add f; git commit -qm $i; done; "
	conflict = "git switch -qc other; echo x >a.txt; git commit -qam one; git switch -q work; " +
		"echo y >a.txt; git commit -qam two; "
)

// What people do with git works in a contained worktree, and leaves the repository alone until it is taken out.
func TestGitWorksContained(t *testing.T) {
	for name, script := range map[string]string{
		"commit": "echo x >f; git add f; git commit -qm one; git log --oneline | grep -q one",
		"amend":  commits + "git commit -q --amend -m two; git log --oneline | grep -q two",
		"stash":  "echo x >>a.txt; git stash -q; git diff --quiet; git stash pop -q; ! git diff --quiet",
		"switch": "git switch -qc other; git switch -q work; git branch -D other",
		"rebase": "echo x >f; git add f; git commit -qm one; git rebase -q main; git log --oneline main..",
		"interactive": commits + "GIT_SEQUENCE_EDITOR='sed -i 3,4s/pick/squash/' GIT_EDITOR=true " +
			"git rebase -qi main; test $(git rev-list --count main..) = 2",
		"merge": "git switch -qc other; " + commits + "git switch -q work; git merge -q --no-ff -m m other",
		"cherry-pick after a conflict": conflict + "! git cherry-pick other; echo z >a.txt; " +
			"git add a.txt; GIT_EDITOR=true git cherry-pick --continue",
		"cherry-pick undone": conflict + "! git cherry-pick other; git cherry-pick --abort",
		"revert":             "echo x >>a.txt; git commit -qam one; git revert --no-edit HEAD",
		"tag":                "git tag t; git tag -am x u; git tag -d t; git tag | grep -q u",
		"branches":           "git branch -m main2; git branch -m work; git branch x main; git branch -d x",
		"config":             "git config user.name A; git config user.name | grep -q A",
		"bisect": commits + "git bisect start HEAD main; git bisect run grep -q 2 f || true; " +
			"git bisect reset",
		"notes": "git notes add -m n; git notes show | grep -q n",
		"worktree": "git worktree add -q --detach /tmp/other main; git -C /tmp/other status --short; " +
			"git worktree remove /tmp/other",
		"pack-refs": "git pack-refs --all; git rev-parse main",
		"gc":        commits + "git gc -q; git fsck --no-progress; test $(git rev-list --count main..) = 3",
		"log":       "git log --all --graph --stat; git blame a.txt; git diff main; git show; git reflog",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJail(t)
			before := gitIn(t, j.repo, "rev-parse", "main")
			j.start()
			j.run(script)
			want := strings.TrimSpace(j.run("git rev-parse HEAD"))
			must(t, j.k.Take(t.Context(), j.path))
			testkit.Equal(t, strings.TrimSpace(gitIn(t, j.path, "rev-parse", "HEAD")), want, "HEAD outside")
			testkit.Equal(t, gitIn(t, j.repo, "rev-parse", "main"), before, "main")
			gitIn(t, j.repo, "fsck", "--strict")
			j.start()
			testkit.Equal(t, strings.TrimSpace(j.run("git rev-parse HEAD")), want, "HEAD of a follow-up")
			j.run("git status --short")
		})
	}
}

// A repository that a contained agent adds reaches nobody's checkout, unless they merge it by hand.
func TestAnAddedRepositoryIsNotMerged(t *testing.T) {
	j := newJail(t)
	j.start()
	j.run("git init -q sub; git -C sub -c user.name=A -c user.email=a@b.c commit -q --allow-empty -m own; " +
		"git add sub; git commit -qm sub; " + commits)
	must(t, j.k.Take(t.Context(), j.path))
	must(t, errors.Join(os.RemoveAll(filepath.Join(j.path, "sub")), os.Mkdir(filepath.Join(j.path, "sub"), 0o755)))
	_, err := j.k.Merge(t.Context(), Landing{Path: j.path, Target: "main", Way: WaySquash, Message: "m"})
	testkit.Fails(t, err, `has added the repository "sub"`, "merging")
	gitIn(t, j.repo, "remote", "add", "origin", t.TempDir())
	_, err = j.k.Push(t.Context(), j.path, "origin", false)
	testkit.Fails(t, err, `has added the repository "sub"`, "pushing")

	gitIn(t, j.path, "rm", "-q", "--cached", "sub")
	gitIn(t, j.path, "commit", "-qm", "without")
	testkit.Get(j.k.Merge(t.Context(), Landing{Path: j.path, Target: "main", Way: WaySquash, Message: "m"})).Must(t)
}

// What an agent leaves beside its branch is kept, and a branch on which it goes on is found by the next one.
func TestWhatALeftAgentHasIsKept(t *testing.T) {
	j := newJail(t)
	j.start()
	j.run("echo s >>a.txt; git stash -q; echo t >>a.txt; git stash -q; git switch -qc side; " +
		"echo x >f; git add f; git commit -qm side; git switch -q --detach; echo y >f; git commit -qam detached")
	head := strings.TrimSpace(j.run("git rev-parse HEAD"))
	must(t, j.k.Take(t.Context(), j.path))
	refs := gitIn(t, j.repo, "for-each-ref", "--format=%(refname)", "refs/deepwork/attempt/a")
	for _, want := range []string{"heads/side", "detached", "stashes/0", "stashes/1"} {
		testkit.Contains(t, refs+"\n", "refs/deepwork/attempt/a/"+want+"\n")
	}
	st := testkit.Get(j.k.Status(t.Context(), j.path, "", "main")).Must(t)
	testkit.Contains(t, st.Elsewhere, head[:12])
	j.start()
	j.run("git rev-parse side; git log --oneline side | grep -q side")
}

// An agent cannot make the repository have other content than what its names say.
func TestPoisonedObjectsStayInside(t *testing.T) {
	j := newJail(t)
	blob := strings.TrimSpace(gitIn(t, j.repo, "rev-parse", "main:a.txt"))
	j.start()
	j.run(`evil=$(echo evil | git hash-object -w --stdin); dir=$(git rev-parse --git-common-dir)/objects
		mkdir -p $dir/` + blob[:2] + `
		cp $dir/$(echo $evil | cut -c1-2)/$(echo $evil | cut -c3-) $dir/` + blob[:2] + "/" + blob[2:] + `
		git config core.fsmonitor /bin/false; git config core.alternateRefsCommand 'touch /tmp/x'
		git config alias.rev-parse '!false'
		echo z >new; git add new; git commit -qm new || true`)
	err := j.k.Take(t.Context(), j.path)
	testkit.Equal(t, gitIn(t, j.repo, "show", "main:a.txt"), "one\ntwo", "main (%v)", err)
	gitIn(t, j.repo, "fsck", "--strict")
	gitIn(t, j.repo, "checkout", "-q", "main")
}

// A branch that somebody has moved meanwhile stays where it is, and the agent's commits are kept.
func TestABranchThatWasMovedStays(t *testing.T) {
	j := newJail(t)
	j.start()
	j.run("echo x >f; git add f; git commit -qm one")
	other := strings.TrimSpace(gitIn(t, j.repo, "commit-tree", "-p", "main", "-m", "other", "main^{tree}"))
	gitIn(t, j.repo, "update-ref", "refs/heads/work", other)
	testkit.FailsWith(t, j.k.Take(t.Context(), j.path), ErrMoved)
	testkit.Equal(t, strings.TrimSpace(gitIn(t, j.repo, "rev-parse", "work")), other, "the branch")
	gitIn(t, j.repo, "log", "-1", "refs/deepwork/attempt/a/heads/work")

	merged := strings.TrimSpace(gitIn(t, j.repo, "commit-tree", "-p", "work", "-p",
		"refs/deepwork/attempt/a/heads/work", "-m", "both", "main^{tree}"))
	gitIn(t, j.repo, "update-ref", "refs/heads/work", merged)
	must(t, j.k.Take(t.Context(), j.path))
	testkit.Equal(t, strings.TrimSpace(gitIn(t, j.repo, "rev-parse", "work")), merged, "the branch")
}

// An operation that an agent has begun is kept for the next one, and refuses a merge.
func TestAnOperationInProgressIsKept(t *testing.T) {
	j := newJail(t)
	j.start()
	j.run(conflict + "! git rebase other")
	must(t, j.k.Take(t.Context(), j.path))
	_, err := j.k.Merge(t.Context(), Landing{Path: j.path, Target: "main", Way: WayMerge})
	testkit.FailsWith(t, err, ErrUnfinished)
	testkit.Fails(t, err, "follow-up")
	j.start()
	j.run("git rebase --abort; git log -1 --format=%s | grep -q two")
	must(t, j.k.Take(t.Context(), j.path))
	testkit.Get(j.k.Merge(t.Context(), Landing{Path: j.path, Target: "main", Way: WayMerge})).Must(t)
	testkit.Contains(t, gitIn(t, j.repo, "log", "--format=%s", "main"), "two")
}

// A merge with conflicts, which was begun outside, is finished or undone by the contained agent.
func TestAMergeIsResolvedContained(t *testing.T) {
	for script, want := range map[string]string{
		"echo z >a.txt; git commit -qam resolved": "resolved",
		"git merge --abort":                       "ours",
	} {
		j := newJail(t)
		j.start()
		j.run("echo x >a.txt; git commit -qam ours")
		must(t, j.k.Take(t.Context(), j.path))
		gitIn(t, j.repo, "switch", "-q", "main")
		testkit.Write(t, filepath.Join(j.repo, "a.txt"), "other\n")
		gitIn(t, j.repo, "commit", "-qam", "theirs")
		testkit.Get(j.k.Update(t.Context(), Landing{Path: j.path, Target: "main", Way: WayMerge})).Must(t)
		j.start()
		testkit.Contains(t, j.run("git status"), "both modified")
		testkit.True(t, testkit.Get(j.k.Status(t.Context(), j.path, "", "main")).Must(t).Merging, "it is merging")
		j.run(script)
		must(t, j.k.Take(t.Context(), j.path))
		testkit.Equal(t, strings.TrimSpace(gitIn(t, j.path, "log", "-1", "--format=%s")), want)
		st := testkit.Get(j.k.Status(t.Context(), j.path, "", "main")).Must(t)
		testkit.True(t, !st.Merging, "it is still merging after %s", script)
	}
}

// Programs that work beside an agent have its private git folder, and what they commit comes out with it.
func TestSharedContainment(t *testing.T) {
	j := newJail(t)
	j.start()
	j.run("echo x >f; git add f; git commit -qm one")
	first := j.plan
	j.plan = testkit.Get(contain.New(j.path)).Must(t)
	must(t, j.k.Contain(t.Context(), j.plan, true, j.path))
	j.run("git log -1 --format=%s | grep -q one; echo y >g; git add g; git commit -qm two")
	j.plan = first
	j.run("git log -1 --format=%s | grep -q two")
	must(t, j.k.Take(t.Context(), j.path))
	testkit.Contains(t, gitIn(t, j.repo, "log", "--format=%s", "work"), "two")
}

// A setup command of a contained attempt is contained, and what it commits is on the branch.
func TestSetupIsContained(t *testing.T) {
	needContain(t)
	repo, secret := newRepo(t), filepath.Join(t.TempDir(), "secret")
	testkit.Write(t, secret, "x")
	k := New(Options{Dir: filepath.Join(t.TempDir(), "worktrees")})
	tree := Tree{RepoID: "r", Name: "repo", Repo: repo, TargetBranch: "main",
		Setup:   []string{"/bin/sh", "-ec", `test ! -e "$0"; echo x >f; git add f; git commit -qm setup`, secret},
		Contain: func(_ context.Context, dir string) (*contain.Plan, error) { return contain.New(dir) }}
	made := testkit.Get(k.Create(t.Context(), "a", "work", []Tree{tree}, nil)).Must(t)
	testkit.Equal(t, strings.TrimSpace(gitIn(t, made[0].Path, "log", "-1", "--format=%s")), "setup")
	testkit.Equal(t, gitIn(t, made[0].Path, "status", "--short"), "", "uncommitted")
}

// BenchmarkContainedStart compares a program that ends at once under bubblewrap alone, contained with its private git
// folder (at most 3 times that), and so for the first time in a repository of 1,000 files (at most 30 times).
func BenchmarkContainedStart(b *testing.B) {
	large := func() *jail {
		repo := newRepo(b)
		for i := range 1000 {
			testkit.Write(b, filepath.Join(repo, fmt.Sprintf("many/%d.txt", i)), fmt.Sprint(i))
		}
		gitIn(b, repo, "add", "-A")
		gitIn(b, repo, "commit", "-qm", "many")
		return jailOf(b, repo)
	}
	var alone time.Duration
	for _, name := range []string{"bubblewrap", "again", "first"} {
		b.Run(name, func(b *testing.B) {
			j := large()
			j.start()
			command := []string{j.plan.Bwrap, "--ro-bind", "/", "/", "--unshare-all", "--die-with-parent",
				"--as-pid-1", "true"} // which leaves out how long the system takes to notice the end of two processes
			for b.Loop() {
				switch name {
				case "bubblewrap":
					_, err := process.Run(b.Context(), process.Spec{Command: command})
					must(b, err)
				case "again":
					b.StopTimer()
					must(b, j.k.Take(b.Context(), j.path))
					b.StartTimer()
					j.start()
					j.plan.Alone = true
					j.run("true")
				case "first":
					b.StopTimer()
					j = large()
					b.StartTimer()
					j.start()
					j.plan.Alone = true
					j.run("true")
				}
			}
			each := b.Elapsed() / time.Duration(b.N)
			if name == "bubblewrap" {
				alone = each
			}
			b.ReportMetric(float64(each)/float64(max(alone, 1)), "of-bubblewrap")
		})
	}
}
