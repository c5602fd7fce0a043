package testkit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clearedEnv marks a process started by a test with a cleared environment: what it has is intended.
const clearedEnv = "TESTKIT_CLEARED"

// foreign are the prefixes of variables with which people set up programs for themselves.
var foreign = []string{
	"DEEPWORK_", "GIT_", "OTEL_", "CLAUDE", "CODEX_", "OPENCODE", "PG", "EDITOR=", "VISUAL=", "PAGER=", "LESS=",
	"NO_COLOR=", "CLICOLOR", "COLUMNS=", "SSH_ASKPASS=", "TRACEPARENT=",
}

// kept are the prefixes of variables with which tests are run.
var kept = []string{
	"DEEPWORK_TEST_", "DEEPWORK_FIGURES=", "DEEPWORK_CRASH_ROUNDS=", "GIT_EXEC_PATH=", "GIT_SSL_", "PGTEST_",
}

// Only programs that go test has started have test flags. A test program that runs under another name, as an
// agent or a server, keeps the environment that it was given.
func init() {
	flagged := slices.ContainsFunc(os.Args[1:], func(arg string) bool { return strings.HasPrefix(arg, "-test.") })
	if testing.Testing() && flagged && os.Getenv(clearedEnv) == "" {
		clearSurroundings()
	}
}

// clearSurroundings removes from a test's environment what the person who runs it has set up for themselves:
// the configs of deepwork and git, and the variables of these and of agents. Tests that need some of that set
// it.
func clearSurroundings() {
	has := func(prefixes []string, variable string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(variable, prefix) })
	}
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); has(foreign, variable) && !has(kept, variable) {
			os.Unsetenv(name)
		}
	}

	none := filepath.Join(os.TempDir(), "no-config-of-tests")
	for name, value := range map[string]string{
		clearedEnv: "1", "XDG_CONFIG_HOME": none, "XDG_STATE_HOME": none, "APPDATA": none, "GIT_CONFIG_NOSYSTEM": "1",
		"GIT_CONFIG_GLOBAL": os.DevNull,
	} {
		os.Setenv(name, value)
	}
}
