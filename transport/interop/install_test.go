//go:build interop

package interop

import (
	"context"
	"encoding/json"
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
	os.Exit(testAll(m))
}

func testAll(m *testing.M) int {
	var err error
	if shared, err = os.MkdirTemp("", "deepwork-interop-"); err != nil {
		fmt.Fprintln(os.Stderr, "making a folder for the clients:", err)
		return 1
	}
	defer os.RemoveAll(shared)
	return statetest.Main(m)
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

func executable(name string) string {
	if runtime.GOOS == "windows" {
		return name + ".exe"
	}
	return name
}

func buildBinary() (string, error) {
	binary := filepath.Join(shared, executable("deepwork"))
	return binary, command(filepath.Join("..", ".."), "go", "build", "-o", binary, "./cmd/deepwork")
}

// installNode puts the scripts and what they need, in the versions of the lock
// file, into one folder, which it returns. No script of a package is run.
func installNode() (string, error) {
	dir := filepath.Join(shared, "npm")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", "source.mjs", "everything.mjs", "client.mjs", "eras.mjs"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", err
		}
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
	if err := os.WriteFile(file, pinned.ReplaceAll(data, []byte(`"$1": "latest"`)), 0o644); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, "package-lock.json")); err != nil {
		return err
	}
	if err := command(dir, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return err
	}
	for _, name := range pinned.FindAllSubmatch(data, -1) {
		var of struct{ Version string }
		if data, err := os.ReadFile(filepath.Join(dir, "node_modules", string(name[1]), "package.json")); err == nil && json.Unmarshal(data, &of) == nil {
			fmt.Printf("newest: %s %s\n", name[1], of.Version)
		}
	}
	return nil
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

// installPython makes an environment with the packages of requirements.txt, and
// returns its interpreter.
func installPython() (string, error) {
	dir := filepath.Join(shared, "python")
	python := filepath.Join(dir, "bin", "python")
	first := "python3"
	if runtime.GOOS == "windows" {
		python, first = filepath.Join(dir, "Scripts", "python.exe"), "python"
	}
	if err := command(".", first, "-m", "venv", dir); err != nil {
		return "", err
	}
	return python, command(".", python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:", "-r", "requirements.txt")
}

// binary is the built deepwork.
func binary(t *testing.T) string {
	t.Helper()
	path := testkit.Get(builtBinary()).Must(t)
	return path
}

// packages is the folder of npm's packages and of the scripts.
func packages(t *testing.T) string {
	t.Helper()
	dir := testkit.Get(nodePackages()).Must(t)
	return dir
}

// agentPackages is the folder of the coding agents.
func agentPackages(t *testing.T) string {
	t.Helper()
	dir := testkit.Get(codingAgentsAt()).Must(t)
	return dir
}

// node is an interpreter that is new enough for all of the packages: the one that
// npm has as a package, since distributions are years behind; if there is none
// for this platform, the one in PATH.
func node(t *testing.T) string {
	t.Helper()
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	path := filepath.Join(packages(t), "node_modules", "node-"+runtime.GOOS+"-"+arch, "bin", "node")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	out, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	testkit.Need(t, err == nil, "npm has no node for %s/%s in the lock file, and there is none in PATH: %v", runtime.GOOS, runtime.GOARCH, err)
	var major, minor int
	if _, err := fmt.Sscanf(strings.TrimSpace(string(out)), "v%d.%d", &major, &minor); err != nil || major < 22 || major == 22 && minor < 19 {
		t.Fatalf("node %s is too old for the clients: put 22.19 or newer into PATH", strings.TrimSpace(string(out)))
	}
	return "node"
}

func python(t *testing.T) string {
	t.Helper()
	path := testkit.Get(pythonProgram()).Must(t)
	return path
}
