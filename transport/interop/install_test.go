//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/state/statetest"
)

// shared is a folder outside the checkout for what all tests use: the binary,
// the packages of npm, the environment of Python.
var shared string

// Everything is made once, by the first test that needs it; the error is for all.
var (
	builtBinary    = sync.OnceValues(buildBinary)
	nodePackages   = sync.OnceValues(installNode)
	codingAgentsAt = sync.OnceValues(installAgents)
	pythonProgram  = sync.OnceValues(installPython)
)

// The test binary is the reviewer of the tests, too: a real subprocess of the server.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "review" {
		review(os.Args[2])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "review-slowly" {
		reviewSlowly(os.Args[2])
		return
	}
	var err error
	if shared, err = os.MkdirTemp("", "deepwork-interop-"); err != nil {
		panic(err)
	}
	code := statetest.Main(m)
	os.RemoveAll(shared)
	os.Exit(code)
}

// command runs a program to its end, 4 minutes at most; an error has its output.
func command(dir string, argv ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %v: %w\n%s", argv, err, out)
	}
	return nil
}

func buildBinary() (string, error) {
	binary := filepath.Join(shared, "deepwork")
	return binary, command(filepath.Join("..", ".."), "go", "build", "-o", binary, "./cmd/deepwork")
}

// installNode puts the scripts and what they need, in the versions of the lock
// file, into one folder, which it returns. No script of a package is run.
func installNode() (string, error) {
	dir := filepath.Join(shared, "npm")
	if err := os.CopyFS(dir, os.DirFS(".")); err != nil {
		return "", err
	}
	return dir, npmInstall(dir)
}

// npmInstall installs the packages that a folder's package.json names, in the versions of its lock file. With
// newest those without a prerelease in package.json are the newest that npm serves, and it prints which these are.
func npmInstall(dir string) error {
	if os.Getenv(newest) == "" {
		return command(dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	}
	file := filepath.Join(dir, "package.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pinned := regexp.MustCompile(`"([^"]+)": "\d+\.\d+\.\d+"`)
	err = errors.Join(os.WriteFile(file, pinned.ReplaceAll(data, []byte(`"$1": "latest"`)), 0o644), os.Remove(filepath.Join(dir, "package-lock.json")),
		command(dir, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"))
	for _, name := range pinned.FindAllSubmatch(data, -1) {
		var of struct{ Version string }
		if data, err := os.ReadFile(filepath.Join(dir, "node_modules", string(name[1]), "package.json")); err == nil && json.Unmarshal(data, &of) == nil {
			fmt.Printf("newest: %s %s\n", name[1], of.Version)
		}
	}
	return err
}

// newest is the variable with which .ci/newest has the newest packages tested.
const newest = "DEEPWORK_TEST_NEWEST"

// installAgents does the same for the coding agents, which are large.
func installAgents() (string, error) {
	dir := filepath.Join(shared, "agents")
	if err := os.CopyFS(dir, os.DirFS("agents")); err != nil {
		return "", err
	}
	return dir, npmInstall(dir)
}

// installPython makes an environment with the packages of requirements.txt, and returns its interpreter.
func installPython() (string, error) {
	dir := filepath.Join(shared, "python")
	python := filepath.Join(dir, "bin", "python")
	if err := command(".", "python3", "-m", "venv", dir); err != nil {
		return "", err
	}
	return python, command(".", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:", "-r", "requirements.txt")
}

// binary is the built deepwork, packages the folder of npm's packages and of the scripts, agentPackages that of the
// coding agents, and python an interpreter.
func binary(t *testing.T) string        { return testkit.Get(builtBinary()).Must(t) }
func packages(t *testing.T) string      { return testkit.Get(nodePackages()).Must(t) }
func agentPackages(t *testing.T) string { return testkit.Get(codingAgentsAt()).Must(t) }
func python(t *testing.T) string        { return testkit.Get(pythonProgram()).Must(t) }

// node is an interpreter that is new enough for all of the packages: the one that npm has as a package, since
// distributions are years behind; if there is none for this platform, the one in PATH.
func node(t *testing.T) string {
	t.Helper()
	arch := strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	path := filepath.Join(packages(t), "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	testkit.Need(t, err == nil, "npm has no node for %s/%s in the lock file, and there is none in PATH: %v", runtime.GOOS, runtime.GOARCH, err)
	var major, minor int
	_, err = fmt.Sscanf(string(out), "v%d.%d", &major, &minor)
	testkit.Need(t, err == nil && (major > 22 || major == 22 && minor >= 19), "node %s is too old for the clients: put 22.19 or newer into PATH", out)
	return "node"
}
