// Package statetest gives tests a state folder and a user's config of their own.
package statetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"deepwork/session/state"
)

// Main runs the tests of a package with a state folder, and a user's config that trusts
// every project in a temporary folder. Child processes inherit both. A TestMain exits
// with what it returns.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "state")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	temp := os.TempDir()
	if err := Prepare(dir, temp); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Prepare makes dir the place of state and of the user's config, for this process and
// its children. The config trusts the projects in these folders.
func Prepare(dir string, trusted ...string) error {
	text := ""
	for _, folder := range trusted {
		text += fmt.Sprintf("  - %q\n", folder)
	}
	if text != "" {
		text = "trusted_folders:\n" + text
	}
	file := filepath.Join(dir, "config", "deepwork", "config.yml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return err
	}
	if err := os.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "config")); err != nil {
		return err
	}
	return os.Setenv(state.Env, filepath.Join(dir, "state"))
}
