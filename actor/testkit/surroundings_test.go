package testkit

import (
	"os"
	"testing"
)

// Tests have no variables and no config of the person who runs them, but those with which they are run.
func TestSurroundingsAreCleared(t *testing.T) {
	for name, stays := range map[string]bool{
		"GIT_AUTHOR_NAME":   false,
		"GIT_DIR":           false,
		"DEEPWORK_STORE":    false,
		"OTEL_SERVICE_NAME": false,
		"PGHOST":            false,
		"COLUMNS":           false,
		"DEEPWORK_TEST_X":   true,
		"GIT_SSL_CAINFO":    true,
		"UNKNOWN_TO_TESTS":  true,
	} {
		t.Setenv(name, "theirs")
		clearSurroundings()
		_, is := os.LookupEnv(name)
		Equal(t, is, stays, name)
	}
	Equal(t, os.Getenv("GIT_CONFIG_GLOBAL"), os.DevNull)
}
