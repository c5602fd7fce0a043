package worktree

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestCopiesKeepTheirModesAndAreNotWork(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, ".env", "SECRET=1")
	write(t, repo, "node_modules/pkg/deep/x.js", "x")
	write(t, repo, "node_modules/pkg/.git/config", "not to be copied")
	write(t, repo, "tool.log", "#!/bin/sh\n")
	os.Chmod(filepath.Join(repo, ".env"), 0o600)
	os.Chmod(filepath.Join(repo, "tool.log"), 0o755)
	k, logged := newKeeper(t)
	tr := tree(repo)
	tr.Copy = []string{".env", "node_modules/", "tool.log", "missing.env"}
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)
	must(t, err)
	path := done[0].Path
	if read(t, path, ".env") != "SECRET=1" || read(t, path, "node_modules/pkg/deep/x.js") != "x" {
		t.Error("a copy is wrong")
	}
	if isThere(filepath.Join(path, "node_modules/pkg/.git")) {
		t.Error("a repository's own files were copied")
	}
	if !strings.Contains(logged.String(), "missing.env") {
		t.Error("a missing file was not told")
	}
	if runtime.GOOS != "windows" {
		for name, mode := range map[string]os.FileMode{".env": 0o600, "tool.log": 0o755} {
			if info, err := os.Stat(filepath.Join(path, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	if st, err := k.Status(t.Context(), path, "", "main"); err != nil || len(st.Changed) > 0 {
		t.Errorf("copies count as changes: %+v, %v", st, err)
	}
	if r := remove(t, k); r.Ref != "" {
		t.Errorf("copies were kept: %+v", r)
	}
}

func TestCopiesOfAFolderInside(t *testing.T) {
	t.Parallel()
	repo := newRepo(t)
	write(t, repo, "lib/.env", "lib's")
	k, _ := newKeeper(t)
	tr := tree(filepath.Join(repo, "lib"))
	tr.Copy = []string{".env"}
	done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)
	must(t, err)
	if got := read(t, done[0].Path, "lib/.env"); got != "lib's" {
		t.Errorf("copied %q", got)
	}
}

func TestCopiesNeverLeaveTheRepositoryNorTheWorktree(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a right here")
	}
	outside := t.TempDir()
	write(t, outside, "secret", "secret")
	link := func(t *testing.T, target, at string) {
		t.Helper()
		must(t, os.Symlink(target, at))
	}
	for name, c := range map[string]struct {
		copy    string
		prepare func(t *testing.T, repo string)
	}{
		"parent":            {"../x", nil},
		"absolute":          {"/etc/passwd", nil},
		"all":               {".", nil},
		"git":               {".git/config", nil},
		"git, another case": {"lib/../.GIT/config", nil},
		"symlink to a file": {"l", func(t *testing.T, repo string) { link(t, filepath.Join(outside, "secret"), filepath.Join(repo, "l")) }},
		"symlink on the way": {"l/secret", func(t *testing.T, repo string) {
			link(t, outside, filepath.Join(repo, "l"))
		}},
		"symlink into git": {"l", func(t *testing.T, repo string) { link(t, ".git/config", filepath.Join(repo, "l")) }},
		"symlink in the worktree": {"out/file", func(t *testing.T, repo string) {
			link(t, outside, filepath.Join(repo, "out"))
			commit(t, repo, "a symlink")
			os.Remove(filepath.Join(repo, "out"))
			write(t, repo, "out/file", "must not get out")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			repo := newRepo(t)
			if c.prepare != nil {
				c.prepare(t, repo)
			}
			k, _ := newKeeper(t)
			tr := tree(repo)
			tr.Copy = []string{c.copy}
			if _, err := k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil); !errors.Is(err, ErrOutside) || !strings.Contains(err.Error(), c.copy) {
				t.Errorf("got %v", err)
			}
			if isThere(filepath.Join(outside, "file")) {
				t.Error("it was written outside")
			}
			nothingLeft(t, k)
			sound(t, repo, 0)
		})
	}
	t.Run("harmless symlinks", func(t *testing.T) {
		repo := newRepo(t)
		write(t, repo, "node_modules/real/x", "x")
		link(t, "../real/x", mk(t, repo, "node_modules/.bin")+"/x")
		link(t, filepath.Join(outside, "secret"), filepath.Join(repo, "node_modules/secret"))
		link(t, "node_modules/real/x", filepath.Join(repo, "my.log"))
		write(t, repo, "tracked", "old")
		commit(t, repo, "tracked")
		write(t, repo, "tracked", "copied over")
		k, logged := newKeeper(t)
		tr := tree(repo)
		tr.Copy = []string{"node_modules", "my.log", "tracked"}
		done, err := k.Create(t.Context(), attemptID, branchName, []Tree{tr}, nil)
		must(t, err)
		path := done[0].Path
		if target, err := os.Readlink(filepath.Join(path, "node_modules/.bin/x")); err != nil || target != "../real/x" {
			t.Errorf("a symlink inside became %q, %v", target, err)
		}
		if isThere(filepath.Join(path, "node_modules/secret")) || !strings.Contains(logged.String(), "leads out") {
			t.Error("a symlink that leads outside was copied, or silently left out")
		}
		if read(t, path, "my.log") != "x" || read(t, path, "tracked") != "copied over" {
			t.Error("a copy is wrong")
		}
	})
}

func mk(t *testing.T, repo, dir string) string {
	path := filepath.Join(repo, dir)
	must(t, os.MkdirAll(path, 0o755))
	return path
}
