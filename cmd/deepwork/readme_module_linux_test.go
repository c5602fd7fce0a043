package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// The commands by which README.md gives the module another path leave no import behind.
func TestReadmeModulePath(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("perl"); err != nil {
		t.Skip("there is no perl, which git usually comes with")
	}
	if _, err := os.Stat(filepath.Join("..", "..", ".git")); err != nil {
		t.Skip("this is no checkout:", err)
	}
	row := regexp.MustCompile("\n\\| the module path.*\\| `(go mod edit .+)`, then `(.+)` \\|\n").FindStringSubmatch(testkit.Pages(t, filepath.Join("..", ".."))[0].Text)
	if row == nil {
		t.Fatal("README.md does not say how to give the module another path")
	}
	const path = "example.com/another/path"
	command := strings.NewReplacer("PATH", path, `\|`, "|").Replace(row[1] + " && " + row[2])
	dir := filepath.Join(testkit.Dir(t), "clone")
	testkit.Git(t, ".", "clone", "-q", filepath.Join("..", ".."), dir)
	run := func(command string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	run(command)
	// It fails if a package cannot be found.
	if listed := run("go list -deps ./cmd/..."); !strings.Contains(listed, "\n"+path+"/cmd/deepwork\n") || strings.Contains(listed, "\ndeepwork/") {
		t.Errorf("after %s the packages are:\n%s", command, listed)
	}
}
