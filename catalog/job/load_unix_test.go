//go:build unix

package job

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// TestLoadDoesNotWait: a pipe or a device in the place of a file is refused at once, though nobody writes to it.
func TestLoadDoesNotWait(t *testing.T) {
	dir, j := baseJob(t)
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Skip(err)
	}
	for target, want := range map[string]string{
		pipe:        "is a named pipe, not a file",
		"/dev/zero": "is a device, not a file",
	} {
		file := filepath.Join(dir, FileName)
		os.Remove(file)
		symlink(t, target, file)
		_, ds := Load(dir)
		testkit.Contains(t, ds.Error(), want, target)
	}
	file := filepath.Join(dir, "steps", "draft.md")
	os.Remove(file)
	symlink(t, pipe, file)
	testkit.Fails(t, testkit.Get(Instructions(j, j.Step("draft"))).Err(), "is a named pipe")
}

func TestLoadWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("everything is permitted to root")
	}
	dir, j := baseJob(t)
	for _, name := range []string{FileName, "steps/draft.md"} {
		testkit.Must(t, os.Chmod(filepath.Join(dir, name), 0))
	}

	const want = "cannot be read, permission is denied: make it readable"
	_, ds := Load(dir)
	testkit.Contains(t, ds.Error(), want)
	testkit.Fails(t, testkit.Get(Instructions(j, j.Step("draft"))).Err(), want)
}
