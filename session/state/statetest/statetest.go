// Package statetest gives tests a state folder and a user config of their own.
package statetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"deepwork/session/state"
)

// childEnv says that a process that Main has prepared started this one.
const childEnv = "STATETEST_CHILD"

// Main runs the tests of a package with a state folder, and with a user config that trusts every project in a
// temporary folder. Child processes inherit both. If the tests pass, it calls leaks, which report what is
// left. A TestMain exits with the result.
func Main(m *testing.M, leaks ...func(...goleak.Option) error) int {
	if os.Getenv(childEnv) == "" {
		dir, err := os.MkdirTemp("", "state")
		if err == nil {
			defer os.RemoveAll(dir)
			err = errors.Join(Prepare(dir, os.TempDir()), os.Setenv(childEnv, "1"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}

	// Most of the tests' memory is garbage, and most of their processes end soon.
	debug.SetGCPercent(400)
	os.Setenv("GOGC", "400")

	code := m.Run()
	for _, find := range leaks {
		if err := find(); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// Prepare does what Write does, and sets the variables for this process and its children.
func Prepare(dir string, trusted ...string) error {
	env, err := Write(dir, trusted...)
	for name, value := range env {
		err = errors.Join(err, os.Setenv(name, value))
	}
	return err
}

// Write makes dir the place of the state and of the user's config, which trusts the projects in these
// folders. It returns the variables that point there.
func Write(dir string, trusted ...string) (env map[string]string, err error) {
	text := ""
	for _, folder := range trusted {
		text += fmt.Sprintf("  - %q\n", folder)
	}
	if text != "" {
		text = "trusted_folders:\n" + text
	}

	file := filepath.Join(dir, "config", "deepwork", "config.yml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return map[string]string{
		"XDG_CONFIG_HOME": filepath.Join(dir, "config"),
		"APPDATA":         filepath.Join(dir, "config"),
		state.Env:         filepath.Join(dir, "state"),
	}, nil
}
