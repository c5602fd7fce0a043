package worktree

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// nobody is a user without rights, as root reads everything.
const nobody = 65534

const unreadableEnv = "WORKTREE_TEST_UNREADABLE"

func TestUnreadableWorkIsNeverRemoved(t *testing.T) {
	if os.Getenv(unreadableEnv) == "" && os.Getuid() == 0 {
		asNobody(t)
		return
	}
	for _, c := range []struct{ name, path string }{
		{"an untracked file", "secret"}, {"a tracked file", "a.txt"}, {"a folder", "closed"}, {"a tracked file's folder", "lib"},
	} {
		t.Run(c.name, func(t *testing.T) {
			repo := newRepo(t)
			k, _ := newKeeper(t)
			path := create(t, k, repo)
			write(t, path, "secret", "s")
			write(t, path, "closed/x", "x")
			at := filepath.Join(path, c.path)
			must(t, os.Chmod(at, 0))
			_, _, err := k.Remove(t.Context(), attemptID, false, nil)
			testkit.True(t, errors.Is(err, ErrNotKept) && strings.Contains(err.Error(), c.path), "got %v", err)
			os.Chmod(at, 0o755)
			testkit.Equal(t, read(t, path, "secret"), "s", "work is gone")
			testkit.Equal(t, read(t, path, "closed/x"), "x", "work is gone")
			r := remove(t, k)
			testkit.True(t, show(t, repo, r.Commit, "secret") == "s" && show(t, repo, r.Commit, "closed/x") == "x", "work is lost")
		})
	}
}

// asNobody runs the test again, as a user without rights.
func asNobody(t *testing.T) {
	dir := testkit.Get(os.MkdirTemp("", "worktree-nobody-*")).Must(t)
	defer os.RemoveAll(dir)
	self := testkit.Get(os.Executable()).Must(t)
	program := filepath.Join(dir, "test")
	data, err := os.ReadFile(self)
	must(t, errors.Join(err, os.WriteFile(program, data, 0o755), os.Chmod(program, 0o755), os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "tmp"), 0o755), os.Chown(filepath.Join(dir, "tmp"), nobody, nobody)))
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), unreadableEnv+"=1", "TMPDIR="+filepath.Join(dir, "tmp"), fmt.Sprintf("GOTMPDIR=%s", filepath.Join(dir, "tmp")))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	testkit.True(t, err == nil && strings.Contains(string(out), "--- PASS: "+t.Name()+"/"), "%v\n%s", err, out)
}

// A repository that this user may not write to is named, with what has to be writable; nothing is left.
func TestField12_RepositoryThatIsReadOnly(t *testing.T) {
	if os.Geteuid() == 0 && os.Getenv(unreadableEnv) == "" {
		asNobody(t)
		return
	}
	for _, folder := range []string{"objects", "refs/heads", "."} {
		t.Run(folder, func(t *testing.T) {
			repo := newRepo(t)
			k, path := attemptIn(t, repo)
			write(t, path, "loose.txt", "work")
			write(t, repo, "lib/b.txt", "meanwhile\n")
			commit(t, repo, "meanwhile")
			readOnly(t, filepath.Join(repo, ".git", folder))
			expectError(t, testkit.Get(k.Merge(t.Context(), landing(path, WayMerge))).Err(), nil, "git may not write to the repository")
			if folder == "objects" {
				_, _, err := k.Remove(t.Context(), attemptID, false, nil)
				expectError(t, err, ErrNotKept, "git may not write to the repository")
			}
			testkit.Equal(t, read(t, path, "loose.txt"), "work", "the work is gone")
		})
	}
}

// readOnly takes the right to write away from a folder and those below it until the end of the test.
func readOnly(t *testing.T, dir string) {
	change := func(mode os.FileMode) {
		must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			return os.Chmod(path, mode)
		}))
	}
	change(0o555)
	t.Cleanup(func() { change(0o755) })
}
