package durable

import (
	"os"
	"path/filepath"
	"testing"

	"deepwork/actor/testkit"
)

// Without a system's folder for temporary files the spare one is used; without both, the error says what to set.
func TestTempFolderWithoutOneOfTheSystem(t *testing.T) {
	spare, missing := t.TempDir(), filepath.Join(t.TempDir(), "missing")
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, missing)
	}
	dir := testkit.Get(TempFolder(spare, "x-*")).Must(t)
	testkit.Equal(t, filepath.Dir(dir), spare)

	_, err := TempFolder("", "x-*")
	testkit.FailsWith(t, err, os.ErrNotExist)
	testkit.Fails(t, err, "set TMPDIR to a folder that can be written")
}
