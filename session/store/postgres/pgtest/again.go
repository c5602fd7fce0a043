package pgtest

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// againVariable is set in a process that runs tests again.
const againVariable = "DEEPWORK_TEST_AGAIN"

// Again runs the tests of the package once more in another process, in which OnPostgres reports true,
// except those named, each with the reason. It skips the test if PostgreSQL is not installed, and does
// nothing in that process.
func Again(t *testing.T, except map[string]string) {
	if OnPostgres() {
		return
	}
	_, err := Shared()
	Need(t, err)
	skip := "^(" + strings.Join(slices.Sorted(maps.Keys(except)), "|") + ")$"
	args := []string{"-test.skip=" + skip, "-test.timeout=20m"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	again := exec.Command(os.Args[0], args...)
	again.Env = append(os.Environ(), againVariable+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("on PostgreSQL: %v\n%s", err, out)
	}
}

// OnPostgres reports whether the tests of this process use the server of Shared.
func OnPostgres() bool { return os.Getenv(againVariable) != "" }
