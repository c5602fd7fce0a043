package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// unpacked unpacks an archive of a release and returns the folder in it that has its name.
func unpacked(t *testing.T, dir, name string) string {
	t.Helper()
	if zipped := filepath.Join(dir, name+".zip"); strings.Contains(name, "windows") {
		return filepath.Join(unzip(t, zipped), name)
	}
	f := testkit.Get(os.Open(filepath.Join(dir, name+".tar.gz"))).Must(t)
	defer f.Close()
	z := testkit.Get(gzip.NewReader(f)).Must(t)
	return filepath.Join(untar(t, z), name)
}

// untar unpacks the files of a tar and returns their folder.
func untar(t *testing.T, r io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		check(t, err)
		if h.Typeflag == tar.TypeReg {
			lay(t, filepath.Join(dir, h.Name), entries, h.FileInfo().Mode())
		}
	}
}

// unzip unpacks a zip and returns its folder.
func unzip(t *testing.T, path string) string {
	t.Helper()
	z := testkit.Get(zip.OpenReader(path)).Must(t)
	defer z.Close()
	dir := t.TempDir()
	for _, f := range z.File {
		in := testkit.Get(f.Open()).Must(t)
		lay(t, filepath.Join(dir, f.Name), in, f.Mode())
	}
	return dir
}

func lay(t *testing.T, path string, content io.Reader, mode os.FileMode) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	check(t, err)
	_, err = io.Copy(f, content)
	check(t, errors.Join(err, f.Close()))
}

// tools starts a server in a project as a client does, and returns the names of its tools.
func tools(t *testing.T, version, project, command string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir, cmd.Stderr = project, t.Output()
	cmd.Env = append(os.Environ(), "DEEPWORK_STATE_DIR="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session := testkit.Get(client.Connect(t.Context(), &mcp.CommandTransport{Command: cmd, TerminateDuration: 10 * time.Second}, nil)).Must(t)
	defer session.Close()
	got := session.InitializeResult().ServerInfo
	testkit.True(t, got.Name == "deepwork" && got.Version == version, "%s presents itself as %s %s", command, got.Name, got.Version)
	list := testkit.Get(session.ListTools(t.Context(), nil)).Must(t)
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	testkit.True(t, slices.Contains(names, "start_workflow"), "%s offers %v", command, names)
	return names
}

// What was built starts and offers its tools: from the archive for this platform, from the bundle as
// its manifest says, and from the plugin with the binary of the archive.
func TestBuiltPrograms(t *testing.T) {
	dir := built(t)
	version := versionOf(t, dir)
	here := platform{runtime.GOOS, runtime.GOARCH}
	folder := unpacked(t, dir, (&release{version: version}).name(here))
	binary := filepath.Join(folder, here.program())

	out := testkit.Get(exec.CommandContext(t.Context(), binary, "version", "--json").Output()).Must(t)
	commit := testkit.Get(exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()).Must(t)
	var v struct {
		Version, Commit string
		Modified        bool
	}
	check(t, json.Unmarshal(out, &v))
	testkit.True(t, v.Version == version && v.Commit == strings.TrimSpace(string(commit)) && !v.Modified, "deepwork version --json printed %s", out)

	project := t.TempDir()
	want := tools(t, version, project, binary, "serve", "--path", ".")

	bundle := unzip(t, filepath.Join(dir, (&release{version: version}).bundleName()))
	checkManifest(t, filepath.Join(bundle, "manifest.json"))
	type config struct {
		Command   string
		Args      []string
		Overrides map[string]struct{ Command string } `json:"platform_overrides"`
	}
	manifest := readJSON[struct {
		Server struct {
			Config config `json:"mcp_config"`
		}
	}](t, filepath.Join(bundle, "manifest.json"))
	command := manifest.Server.Config.Command
	if o := manifest.Server.Config.Overrides["win32"].Command; runtime.GOOS == "windows" && o != "" {
		command = o
	}
	fill := strings.NewReplacer("${__dirname}", bundle, "${user_config.project}", project).Replace
	args := manifest.Server.Config.Args
	for i := range args {
		args[i] = fill(args[i])
	}
	testkit.Same(t, tools(t, version, os.TempDir(), fill(command), args...), want, "the tools of the bundle and of the archive")

	plugin := readJSON[struct{ MCPServers map[string]config }](t, filepath.Join(dir, "plugin", ".mcp.json")).MCPServers["deepwork"]
	t.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	testkit.Same(t, tools(t, version, project, plugin.Command, plugin.Args...), want, "the tools of the plugin and of the archive")
}

// checkManifest checks a manifest with the program of the bundles' authors, which .ci/run installs.
func checkManifest(t *testing.T, path string) {
	t.Helper()
	program := os.Getenv("DEEPWORK_TEST_MCPB")
	if program == "" {
		t.Log("DEEPWORK_TEST_MCPB does not name the program mcpb: the manifest is not checked with it")
		return
	}
	out, err := exec.CommandContext(t.Context(), "node", program, "validate", path).CombinedOutput()
	testkit.True(t, err == nil, "mcpb validate: %v\n%s", err, out)
}

// The script refuses what would make a bad release, before it makes a folder.
func TestScriptRefuses(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	script, err := os.ReadFile(filepath.Join("..", "..", ".ci", "release"))
	check(t, err)
	around := t.TempDir()
	check(t, exec.CommandContext(t.Context(), "git", "init", "-q", around).Run())
	copied := filepath.Join(around, "unpacked", ".ci", "release")
	check(t, os.MkdirAll(filepath.Dir(copied), 0o755))
	check(t, os.WriteFile(copied, script, 0o755))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"1.2.3"}, 2, "usage: "},
		{[]string{"v1.2.3", "DIR"}, 2, "usage: "},
		{[]string{"1.2", "DIR"}, 2, "usage: "},
		{[]string{"01.2.3", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3-rc..1", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3-", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3+build", "DIR"}, 2, "usage: "},
		{[]string{"1.2.3-rc.1", "DIR"}, 1, "is not a git checkout of its own"},
	} {
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{copied}, tt.args...)...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		exit, _ := errors.AsType[*exec.ExitError](err)
		testkit.True(t, exit != nil && exit.ExitCode() == tt.code && strings.Contains(string(out), tt.want), "%q: %v\n%s", tt.args, err, out)
		if made, err := os.ReadDir(cmd.Dir); err != nil || len(made) > 0 {
			t.Errorf("%q made %v, %v", tt.args, made, err)
		}
	}
}
