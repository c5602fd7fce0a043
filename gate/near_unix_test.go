//go:build unix

package gate

import (
	"path/filepath"
	"syscall"
	"testing"

	"deepwork/actor/testkit"
)

// A path through a pipe names no file, and nobody waits for who would write to the pipe.
func TestNearWaitsForNoPipe(t *testing.T) {
	root := testkit.Dir(t)
	testkit.Must(t, syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600))
	testkit.Equal(t, Near(root, "pipe/report.md"), "")
}
