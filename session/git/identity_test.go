package git

import (
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
)

func TestIdentity(t *testing.T) {
	if remote, root := Identity(t.Context(), t.TempDir()); remote != "" || root != "" {
		t.Errorf("no repository is %q, %q", remote, root)
	}
	dir, run := repo(t)
	commit(run)
	first := run("rev-parse", "HEAD")
	run("update-ref", "refs/heads/main", run("commit-tree", run("write-tree"), "-p", first, "-m", "two"))
	if remote, root := Identity(t.Context(), dir); remote != "" || root != first {
		t.Errorf("without a remote it is %q, %q; its first commit is %q", remote, root, first)
	}
	testkit.Git(t, dir, "remote", "add", "fork", "https://example.com/fork.git")
	testkit.Git(t, dir, "remote", "add", "origin", "git@example.com:team/shop.git")
	if remote, root := Identity(t.Context(), dir); remote != "git@example.com:team/shop.git" || root != first {
		t.Errorf("it is %q, %q", remote, root)
	}
	shallow := filepath.Join(t.TempDir(), "clone")
	testkit.Git(t, dir, "clone", "-q", "--depth=1", "file://"+dir, shallow)
	if remote, root := Identity(t.Context(), shallow); remote != "file://"+dir || root != "" {
		t.Errorf("a shallow clone is %q, %q", remote, root)
	}
}
