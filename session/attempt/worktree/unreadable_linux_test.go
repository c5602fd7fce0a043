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
		{"an untracked file", "secret"}, {"a tracked file", "a.txt"}, {"a folder", "closed"},
		{"a tracked file's folder", "lib"},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, repo, path := started(t)
			write(t, path, "secret", "s", "closed/x", "x")
			at := filepath.Join(path, c.path)
			must(t, os.Chmod(at, 0))
			expectError(t, notRemoved(t, k), ErrNotKept, c.path)
			must(t, os.Chmod(at, 0o755))
			reads(t, path, "secret", "s", "closed/x", "x")
			holds(t, repo, remove(t, k).Commit, "secret", "s", "closed/x", "x")
		})
	}
}

// asNobody runs the test again, as a user without rights.
func asNobody(t *testing.T) {
	dir := testkit.Get(os.MkdirTemp("", "worktree-nobody-*")).Must(t)
	defer os.RemoveAll(dir)
	program, tmp := filepath.Join(dir, "test"), filepath.Join(dir, "tmp")
	executable(t, program, read(t, testkit.Get(os.Executable()).Must(t)))
	must(t, errors.Join(os.Chmod(dir, 0o755), os.Mkdir(tmp, 0o755), os.Chown(tmp, nobody, nobody)))
	must(t, os.WriteFile(filepath.Join(tmp, ofRoot), []byte("x"), 0o600)) // for tests that need one
	cmd := exec.Command(program, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), unreadableEnv+"=1", "TMPDIR="+tmp, "GOTMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	testkit.True(t, err == nil && strings.Contains(string(out), "--- PASS: "+t.Name()+"/"), "%v\n%s", err, out)
}

const ofRoot = "of-root"

// The error about work of another user, as a container writes it, names the files and the command that gives
// them to this one.
func TestFilesOfAnotherUserAreNamed(t *testing.T) {
	if os.Geteuid() == 0 && os.Getenv(unreadableEnv) == "" {
		asNobody(t)
		return
	}
	t.Run("removed", func(t *testing.T) {
		k, _, path := started(t)
		if err := os.Rename(filepath.Join(os.TempDir(), ofRoot), filepath.Join(path, ofRoot)); err != nil {
			t.Skip("there is no file of another user: ", err)
		}
		err := notRemoved(t, k)
		expectError(t, err, ErrNotKept, filepath.Base(path)+"/"+ofRoot)
		testkit.Fails(t, err, fmt.Sprintf("sudo chown -R %d %s", os.Geteuid(), filepath.Dir(path)))
	})
}

// A repository that this user may not write to is named, with what has to be writable; nothing is left.
func TestField12_RepositoryThatIsReadOnly(t *testing.T) {
	if os.Geteuid() == 0 && os.Getenv(unreadableEnv) == "" {
		asNobody(t)
		return
	}

	for _, folder := range []string{"objects", "refs/heads", "."} {
		t.Run(folder, func(t *testing.T) {
			k, repo, path := worked(t)
			write(t, path, "loose.txt", "work")
			commit(t, repo, "meanwhile", "lib/b.txt", "meanwhile\n")
			readOnly(t, filepath.Join(repo, ".git", folder))
			testkit.Fails(t, notMerged(t, k, path, WayMerge), "git may not write to the repository")
			if folder == "objects" {
				expectError(t, notRemoved(t, k), ErrNotKept, "git may not write to the repository")
			}
			reads(t, path, "loose.txt", "work")
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
