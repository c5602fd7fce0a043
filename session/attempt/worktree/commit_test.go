package worktree

import (
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
)

// Commit commits what agents have left, as the user, without copies that git does not ignore; it ends a merge whose conflicts
// are resolved, and refuses one with conflicts.
func TestCommitWhatIsLeft(t *testing.T) {
	asUser(t, "")
	repo := newRepo(t)
	write(t, repo, "secret", "s\n")
	k, _ := newKeeper(t)
	made := testkit.Get(k.Create(t.Context(), "a1", branchName, []Tree{{RepoID: "r", Name: "repo", Repo: repo, TargetBranch: "main", Copy: []string{"secret"}}}, nil)).Must(t)
	path := made[0].Path
	before := gitIn(t, path, "rev-parse", "HEAD")
	testkit.Must(t, k.Commit(t.Context(), path, "nothing"))
	testkit.Equal(t, gitIn(t, path, "rev-parse", "HEAD"), before, "a commit of nothing")
	write(t, path, "a.txt", "theirs\n")
	write(t, path, "new dir/new.txt", "n\n")
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	testkit.Equal(t, gitIn(t, path, "show", "--format=%an %s", "--name-only"), "Una User left\n\na.txt\nnew dir/new.txt")
	testkit.Equal(t, gitIn(t, path, "status", "--porcelain"), "?? secret")
	inside := filepath.Join(path, "vendor", "theirs")
	testkit.Must(t, os.CopyFS(inside, os.DirFS(newRepo(t))))
	testkit.Fails(t, k.Commit(t.Context(), path, "left"), inside+" is a git repository of its own")
	testkit.Must(t, os.RemoveAll(inside))

	testkit.Must(t, os.Remove(filepath.Join(repo, "secret"))) // else it is committed there
	write(t, repo, "a.txt", "ours\n")
	commit(t, repo, "meanwhile")
	landed := testkit.Get(k.Update(t.Context(), landing(path, WayMerge))).Must(t)
	testkit.Equal(t, len(landed.Conflicts), 1)
	testkit.FailsWith(t, k.Commit(t.Context(), path, "left"), ErrUnfinished)
	gitIn(t, path, "checkout", "-q", "--ours", "a.txt") // which changes nothing
	gitIn(t, path, "add", "a.txt")
	testkit.Must(t, k.Commit(t.Context(), path, "left"))
	testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Must(t)
	testkit.Equal(t, show(t, repo, "main", "a.txt"), "theirs\n")
}
