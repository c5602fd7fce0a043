package git

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

func TestIdentity(t *testing.T) {
	if remote, root, err := Identity(t.Context(), t.TempDir()); remote != "" || root != "" || err != nil {
		t.Errorf("no repository is %q, %q, %v", remote, root, err)
	}
	dir, run := repo(t)
	if remote, root, err := Identity(t.Context(), dir); remote != "" || root != "" || err != nil {
		t.Errorf("a repository without a commit is %q, %q, %v", remote, root, err)
	}
	commit(run)
	first := run("rev-parse", "HEAD")
	run("update-ref", "refs/heads/main", run("commit-tree", run("write-tree"), "-p", first, "-m", "two"))
	if remote, root, err := Identity(t.Context(), dir); remote != "" || root != first || err != nil {
		t.Errorf("without a remote it is %q, %q; its first commit is %q", remote, root, first)
	}
	testkit.Git(t, dir, "remote", "add", "fork", "https://example.com/fork.git")
	testkit.Git(t, dir, "remote", "add", "origin", "git@example.com:team/shop.git")
	if remote, root, err := Identity(t.Context(), dir); err != nil || remote != "git@example.com:team/shop.git" || root != first {
		t.Errorf("it is %q, %q", remote, root)
	}
	shallow := filepath.Join(t.TempDir(), "clone")
	testkit.Git(t, dir, "clone", "-q", "--depth=1", "file://"+dir, shallow)
	if remote, root, err := Identity(t.Context(), shallow); err != nil || remote != "file://"+dir || root != "" {
		t.Errorf("a shallow clone is %q, %q", remote, root)
	}
}

// A git that fails or takes too long does not pass for a folder without a repository.
func TestIdentityThatCannotBeFound(t *testing.T) {
	dir, run := repo(t)
	commit(run)
	late, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, _, err := Identity(late, dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("too late: %v", err)
	}
	broken := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(broken, ".git"), []byte("gitdir: /not/there\n"), 0o600))
	if _, _, err := Identity(t.Context(), broken); err == nil {
		t.Error("a repository that is gone passes for a folder without one")
	}
	testkit.Must(t, os.WriteFile(filepath.Join(dir, ".git", "HEAD"), []byte(strings.Repeat("1", 40)+"\n"), 0o600))
	if _, _, err := Identity(t.Context(), dir); err == nil {
		t.Error("a damaged repository passes for one without a commit")
	}
	t.Setenv("PATH", t.TempDir())
	if _, _, err := Identity(t.Context(), dir); err == nil {
		t.Error("no git passes for no repository")
	}
}
