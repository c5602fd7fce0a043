package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"deepwork/actor/testkit"
)

var check = testkit.Must

// built returns the folder of a release of the commit that is checked out, which .ci/run builds, and its
// version, from the name of its bundle.
func built(t *testing.T) (dir string, r *release) {
	t.Helper()
	dir = os.Getenv("DEEPWORK_TEST_RELEASE")
	if dir == "" {
		t.Skip("DEEPWORK_TEST_RELEASE does not name the folder of a release")
	}
	found := testkit.Get(filepath.Glob(filepath.Join(dir, "deepwork_*.mcpb"))).Must(t)
	testkit.Need(t, len(found) == 1, "bundles in %s: %v", dir, found)
	return dir, &release{version: strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "deepwork_"), ".mcpb")}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	return string(testkit.Get(os.ReadFile(filepath.Join(path...))).Must(t))
}

// sums returns the checksums of a release, which must be right and complete.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for line := range strings.Lines(read(t, dir, "SHA256SUMS")) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		all[name] = sum
	}
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		name := filepath.ToSlash(testkit.Get(filepath.Rel(dir, path)).Must(t))
		testkit.Equal(t, all[name], testkit.Get(checksum(path)).Must(t), "the checksum of %s in SHA256SUMS", name)
		return nil
	}))

	return all
}

// readJSON reads a JSON file.
func readJSON[T any](t *testing.T, path ...string) (v T) {
	t.Helper()
	check(t, json.Unmarshal([]byte(read(t, path...)), &v))
	return v
}

// unpacked unpacks an archive of a release and returns the folder in it that has its name.
func unpacked(t *testing.T, dir, name string) string {
	t.Helper()
	if zipped := filepath.Join(dir, name+".zip"); strings.Contains(name, "windows") {
		return filepath.Join(unzip(t, zipped), name)
	}
	return filepath.Join(untar(t, testkit.Get(gzip.NewReader(strings.NewReader(read(t, dir, name+".tar.gz")))).Must(t)),
		name)
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
		lay(t, filepath.Join(dir, f.Name), testkit.Get(f.Open()).Must(t), f.Mode())
	}
	return dir
}

func lay(t *testing.T, path string, content io.Reader, mode os.FileMode) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, testkit.Get(io.ReadAll(content)).Must(t), mode))
}

// packed packs stand-ins for the binaries, which have the time at, and returns the folder.
func packed(t *testing.T, at time.Time) string {
	t.Helper()
	r := release{
		version: "1.2.3",
		commit:  "c0ffee",
		time:    time.Unix(1700000000, 0).UTC(),
		from:    t.TempDir(),
		to:      filepath.Join(t.TempDir(), "out"),
	}
	paths := []string{filepath.Join(r.from, "common", "THIRD_PARTY_LICENSES"),
		filepath.Join(r.from, "common", "README.md")}
	for _, p := range platforms {
		paths = append(paths, r.binary(p), filepath.Join(r.from, p.os+"-"+p.arch, "sbom.json"))
	}
	for _, path := range paths {
		lay(t, path, strings.NewReader("content of "+testkit.Get(filepath.Rel(r.from, path)).Must(t)), 0o600)
		check(t, os.Chtimes(path, at, at))
	}
	check(t, r.write())
	return r.to
}

// The same input in another folder, with other times and permissions, gives the same bytes.
func TestSameBytes(t *testing.T) {
	one, two := sums(t, packed(t, time.Unix(1, 0))), sums(t, packed(t, time.Now()))
	testkit.True(t, len(one) >= 20 && maps.Equal(one, two), "one has %d files:\n%v\nthe other %d:\n%v", len(one), one,
		len(two), two)
}

// An entry has the time of the commit, the owner root and only the permissions that are meant. The README of
// an archive says first where the files are that it links to. Everybody may read the files of the image, and
// none is a program: those are in its layers.
func TestPacked(t *testing.T) {
	dir := packed(t, time.Now())
	const linux = "deepwork_1.2.3_linux_amd64"
	z := testkit.Get(gzip.NewReader(strings.NewReader(read(t, dir, linux+".tar.gz")))).Must(t)
	modes := map[string]int64{}
	for entries := tar.NewReader(z); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}

		check(t, err)
		modes[h.Name] = h.Mode
		testkit.Equal(t, h.Uid, 0, "%s is of %d:%d %q at %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		testkit.Equal(t, h.Gid, 0, "%s is of %d:%d %q at %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		testkit.Equal(t, h.Uname, "", "%s is of %d:%d %q at %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		testkit.Equal(t, h.ModTime.Unix(), 1700000000, "%s is of %d:%d %q at %s", h.Name, h.Uid, h.Gid, h.Uname,
			h.ModTime)
	}
	testkit.Same(t, modes, map[string]int64{
		linux + "/deepwork":             0o755,
		linux + "/README.md":            0o644,
		linux + "/THIRD_PARTY_LICENSES": 0o644,
	})

	for _, p := range platforms {
		name := (&release{version: "1.2.3"}).name(p)
		note, rest, _ := strings.Cut(read(t, unpacked(t, dir, name), "README.md"), "\n\n")
		testkit.ContainsAll(t, note,
			[]string{"1.2.3 for " + p.os + "/" + p.arch, "commit c0ffee", "`" + p.program() + "`", "https://"},
			"%s: the README begins without", name)
		testkit.Equal(t, rest, "content of "+filepath.Join("common", "README.md"), "%s: the README goes on", name)
	}

	check(t, filepath.WalkDir(filepath.Join(dir, "image"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && runtime.GOOS != "windows" {
			testkit.Equal(t, testkit.Get(d.Info()).Must(t).Mode().Perm(), 0o644, "%s", path)
		}
		return err
	}))
}

// A release is never written over another.
func TestDoesNotOverwrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.zip")
	check(t, writeZip(file, nil, time.Time{}))
	testkit.FailsWith(t, writeZip(file, nil, time.Time{}), os.ErrExist)
}

// commit is what is checked out.
func commit(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(string(
		testkit.Get(exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()).Must(t)))
}

// Each archive has a binary for its platform, of this commit, and next to it a list of its components.
func TestBuiltArchives(t *testing.T) {
	dir, r := built(t)
	sums(t, dir)
	for _, p := range platforms {
		info := testkit.Get(buildinfo.ReadFile(filepath.Join(unpacked(t, dir, r.name(p)), p.program()))).Must(t)
		for key, want := range map[string]string{
			"GOOS":         p.os,
			"GOARCH":       p.arch,
			"CGO_ENABLED":  "0",
			"-trimpath":    "true",
			"vcs.revision": commit(t),
			"vcs.modified": "false",
		} {
			testkit.True(t, slices.Contains(info.Settings, debug.BuildSetting{Key: key, Value: want}),
				"%s: %s is not %s: %v", r.name(p), key, want, info.Settings)
		}
		sbom := readJSON[struct {
			BOMFormat  string
			Components []struct{ Name, Version string }
		}](t, dir, r.name(p)+".cdx.json")
		testkit.Equal(t, sbom.BOMFormat, "CycloneDX")

		listed := map[string]bool{"std@" + info.GoVersion: true}
		for _, c := range sbom.Components {
			listed[c.Name+"@"+c.Version] = true
		}
		for _, m := range info.Deps {
			testkit.True(t, listed[m.Path+"@"+m.Version], "the components of %s lack %s %s", r.name(p), m.Path,
				m.Version)
		}
	}
}

// The images are well-formed, and have the binaries of the archives and certificates.
func TestBuiltImage(t *testing.T) {
	dir, r := built(t)
	path := testkit.Get(layout.FromPath(filepath.Join(dir, "image"))).Must(t)
	index := testkit.Get(path.ImageIndex()).Must(t)
	check(t, validate.Index(index))
	inner := testkit.Get(index.ImageIndex(testkit.Get(index.IndexManifest()).Must(t).Manifests[0].Digest)).Must(t)
	manifest := testkit.Get(inner.IndexManifest()).Must(t)
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool {
			return d.Platform.Architecture == p.arch
		})
		img := testkit.Get(inner.Image(manifest.Manifests[i].Digest)).Must(t)
		config := testkit.Get(img.ConfigFile()).Must(t)
		testkit.True(t, config.Architecture == p.arch &&
			slices.Contains(config.Config.Env, "DEEPWORK_STATE_DIR=/state"), "the image for %s: %+v", p.arch, config)

		content := untar(t, mutate.Extract(img))
		testkit.True(t, read(t, content, "deepwork") == read(t, unpacked(t, dir, r.name(p)), p.program()),
			"the image for %s does not have the binary of the archive", p.arch)

		certificates := []byte(read(t, content, "etc", "ssl", "certs", "ca-certificates.crt"))
		testkit.True(t, x509.NewCertPool().AppendCertsFromPEM(certificates),
			"the image for %s has no certificates", p.arch)
	}
}

// server.json is as the MCP registry's schema wants it, and has the checksum of the bundle.
func TestBuiltRegistryEntry(t *testing.T) {
	dir, _ := built(t)
	var module struct{ Dir string }
	check(t,
		json.Unmarshal(testkit.Get(exec.CommandContext(t.Context(), "go", "mod", "download", "-json",
			"github.com/modelcontextprotocol/registry@v1.8.8").Output()).Must(t), &module))
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check(t, compiler.AddResource(registrySchema,
		readJSON[any](t, module.Dir, "internal", "validators", "schemas", "2025-12-11.json")))
	testkit.Works(t, testkit.Get(compiler.Compile(registrySchema)).Must(t).
		Validate(readJSON[any](t, dir, "server.json")))

	entry := readJSON[struct {
		Packages []struct{ Identifier, FileSHA256 string }
	}](t, dir, "server.json")
	for _, p := range entry.Packages {
		testkit.Equal(t, sums(t, dir)[p.Identifier[strings.LastIndex(p.Identifier, "/")+1:]], p.FileSHA256,
			p.Identifier)
	}
}

// tools starts a server in a project as a client does, and returns the names of its tools.
func tools(t *testing.T, version, project, command string, args ...string) (names []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir, cmd.Stderr = project, t.Output()
	cmd.Env = append(os.Environ(), "DEEPWORK_STATE_DIR="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session := testkit.Get(client.Connect(t.Context(),
		&mcp.CommandTransport{Command: cmd, TerminateDuration: 10 * time.Second}, nil)).Must(t)
	defer session.Close()
	got := session.InitializeResult().ServerInfo
	testkit.Equal(t, got.Name+" "+got.Version, "deepwork "+version, "%s presents itself as", command)

	for _, tool := range testkit.Get(session.ListTools(t.Context(), nil)).Must(t).Tools {
		names = append(names, tool.Name)
	}
	testkit.True(t, slices.Contains(names, "start_workflow"), "%s offers %v", command, names)
	return names
}

// What was built starts and offers its tools: from the archive for this platform, from the bundle as
// its manifest says, and from the plugin with the binary of the archive.
func TestBuiltPrograms(t *testing.T) {
	dir, r := built(t)
	here := platform{runtime.GOOS, runtime.GOARCH}
	folder := unpacked(t, dir, r.name(here))
	binary := filepath.Join(folder, here.program())
	out := testkit.Get(exec.CommandContext(t.Context(), binary, "version", "--json").Output()).Must(t)
	var v struct {
		Version, Commit string
		Modified        bool
	}
	check(t, json.Unmarshal(out, &v))
	testkit.Equal(t, v.Version, r.version, "deepwork version --json printed %s", out)
	testkit.Equal(t, v.Commit, commit(t), "deepwork version --json printed %s", out)
	testkit.True(t, !v.Modified, "deepwork version --json printed %s", out)

	project := t.TempDir()
	want := tools(t, r.version, project, binary, "serve", "--path", ".")

	bundle := unzip(t, filepath.Join(dir, r.bundleName()))
	if program := os.Getenv("DEEPWORK_TEST_MCPB"); program != "" { // of the bundles' authors, which .ci/run installs
		out, err := exec.CommandContext(t.Context(), "node", program, "validate",
			filepath.Join(bundle, "manifest.json")).CombinedOutput()
		testkit.Works(t, err, "mcpb validate: %s", out)
	}

	type config struct {
		Command   string
		Args      []string
		Overrides map[string]struct{ Command string } `json:"platform_overrides"`
	}
	started := readJSON[struct {
		Server struct {
			Config config `json:"mcp_config"`
		}
	}](t, bundle, "manifest.json").Server.Config
	if o := started.Overrides["win32"].Command; runtime.GOOS == "windows" && o != "" {
		started.Command = o
	}
	fill := strings.NewReplacer("${__dirname}", bundle, "${user_config.project}", project).Replace
	for i := range started.Args {
		started.Args[i] = fill(started.Args[i])
	}
	testkit.Same(t, tools(t, r.version, os.TempDir(), fill(started.Command), started.Args...), want,
		"the tools of the bundle and of the archive")

	plugin := readJSON[struct{ MCPServers map[string]config }](t, dir, "plugin", ".mcp.json").MCPServers["deepwork"]
	t.Setenv("PATH", folder+string(filepath.ListSeparator)+os.Getenv("PATH"))
	testkit.Same(t, tools(t, r.version, project, plugin.Command, plugin.Args...), want,
		"the tools of the plugin and of the archive")
}

// The script refuses what would make a bad release, before it makes a folder.
func TestScriptRefuses(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}

	around := t.TempDir()
	check(t, exec.CommandContext(t.Context(), "git", "init", "-q", around).Run())
	copied := filepath.Join(around, "unpacked", ".ci", "release")
	lay(t, copied, strings.NewReader(read(t, "..", "..", ".ci", "release")), 0o755)
	for _, args := range []string{"1.2.3", "v1.2.3 DIR", "1.2 DIR", "01.2.3 DIR", "1.2.3-rc..1 DIR", "1.2.3- DIR",
		"1.2.3+build DIR", "1.2.3-rc.1 DIR"} {
		code, want := 2, "usage: "
		if args == "1.2.3-rc.1 DIR" {
			code, want = 1, "is not a git checkout of its own"
		}
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{copied}, strings.Fields(args)...)...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		testkit.True(t, cmd.ProcessState.ExitCode() == code && strings.Contains(string(out), want), "%q: %v\n%s",
			args, err, out)
		made, err := os.ReadDir(cmd.Dir)
		testkit.True(t, err == nil && len(made) == 0, "%q made %v, %v", args, made, err)
	}
}
