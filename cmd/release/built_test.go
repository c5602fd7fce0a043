package main

import (
	"bytes"
	"crypto/x509"
	"debug/buildinfo"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"deepwork/actor/testkit"
)

// built returns the folder of a release of the commit that is checked out: .ci/run builds one.
func built(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("DEEPWORK_TEST_RELEASE")
	if dir == "" {
		t.Skip("DEEPWORK_TEST_RELEASE does not name the folder of a release")
	}
	return dir
}

// versionOf returns the version of a release from the name of its bundle.
func versionOf(t *testing.T, dir string) string {
	t.Helper()
	found := testkit.Get(filepath.Glob(filepath.Join(dir, "deepwork_*.mcpb"))).Must(t)
	testkit.Need(t, len(found) == 1, "bundles in %s: %v", dir, found)
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "deepwork_"), ".mcpb")
}

// sums returns the checksums of a release, which must be right and complete.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	check(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(data)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		all[name] = sum
	}
	check(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		name := testkit.Get(filepath.Rel(dir, path)).Must(t)
		got, err := checksum(path)
		want := all[filepath.ToSlash(name)]
		testkit.True(t, got == want, "%s has the checksum %s; SHA256SUMS says %q", name, got, want)
		return err
	}))
	return all
}

// readJSON reads a JSON file.
func readJSON[T any](t *testing.T, path string) (v T) {
	t.Helper()
	data := testkit.Get(os.ReadFile(path)).Must(t)
	check(t, json.Unmarshal(data, &v))
	return v
}

// Each archive has a binary for its platform, of this commit, and next to it a list of its components.
func TestBuiltArchives(t *testing.T) {
	dir := built(t)
	r := release{version: versionOf(t, dir)}
	sums(t, dir)
	commit := testkit.Get(exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD").Output()).Must(t)
	for _, p := range platforms {
		binary := filepath.Join(unpacked(t, dir, r.name(p)), p.program())
		info := testkit.Get(buildinfo.ReadFile(binary)).Must(t)
		for key, want := range map[string]string{
			"GOOS": p.os, "GOARCH": p.arch, "CGO_ENABLED": "0", "-trimpath": "true",
			"vcs.revision": strings.TrimSpace(string(commit)), "vcs.modified": "false",
		} {
			i := slices.IndexFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == key })
			if i < 0 || info.Settings[i].Value != want {
				t.Errorf("%s: %s is not %s: %v", r.name(p), key, want, info.Settings)
			}
		}
		sbom := readJSON[struct {
			BOMFormat  string
			Components []struct{ Name, Version string }
		}](t, filepath.Join(dir, r.name(p)+".cdx.json"))
		listed := map[string]bool{"std@" + info.GoVersion: true}
		for _, c := range sbom.Components {
			listed[c.Name+"@"+c.Version] = true
		}
		for _, m := range info.Deps {
			if sbom.BOMFormat != "CycloneDX" || !listed[m.Path+"@"+m.Version] {
				t.Errorf("the components of %s lack %s %s", r.name(p), m.Path, m.Version)
			}
		}
	}
}

// The images are well-formed, and have the binaries of the archives and certificates.
func TestBuiltImage(t *testing.T) {
	dir := built(t)
	r := release{version: versionOf(t, dir)}
	path := testkit.Get(layout.FromPath(filepath.Join(dir, "image"))).Must(t)
	index, err := path.ImageIndex()
	check(t, err)
	check(t, validate.Index(index))
	for _, p := range platforms {
		if p.os != "linux" {
			continue
		}
		outer := testkit.Get(index.IndexManifest()).Must(t)
		inner := testkit.Get(index.ImageIndex(outer.Manifests[0].Digest)).Must(t)
		manifest := testkit.Get(inner.IndexManifest()).Must(t)
		i := slices.IndexFunc(manifest.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == p.arch })
		img := testkit.Get(inner.Image(manifest.Manifests[i].Digest)).Must(t)
		config := testkit.Get(img.ConfigFile()).Must(t)
		testkit.True(t, config.Architecture == p.arch && slices.Contains(config.Config.Env, "DEEPWORK_STATE_DIR=/state"), "the image for %s: %+v", p.arch, config)
		content := untar(t, mutate.Extract(img))
		want := testkit.Get(os.ReadFile(filepath.Join(unpacked(t, dir, r.name(p)), p.program()))).Must(t)
		if got, err := os.ReadFile(filepath.Join(content, "deepwork")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("the image for %s does not have the binary of the archive: %v", p.arch, err)
		}
		certificates, err := os.ReadFile(filepath.Join(content, "etc", "ssl", "certs", "ca-certificates.crt"))
		pool := x509.NewCertPool()
		testkit.True(t, err == nil && pool.AppendCertsFromPEM(certificates), "the image for %s has no certificates: %v", p.arch, err)
	}
}

// server.json is as the MCP registry's schema wants it, and has the checksum of the bundle.
func TestBuiltRegistryEntry(t *testing.T) {
	dir := built(t)
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/modelcontextprotocol/registry@v1.8.8")
	out := testkit.Get(cmd.Output()).Must(t)
	var module struct{ Dir string }
	check(t, json.Unmarshal(out, &module))
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check(t, compiler.AddResource(registrySchema, readJSON[any](t, filepath.Join(module.Dir, "internal", "validators", "schemas", "2025-12-11.json"))))
	schema := testkit.Get(compiler.Compile(registrySchema)).Must(t)
	testkit.Works(t, schema.Validate(readJSON[any](t, filepath.Join(dir, "server.json"))))
	entry := readJSON[struct {
		Packages []struct{ Identifier, FileSHA256 string }
	}](t, filepath.Join(dir, "server.json"))
	for _, p := range entry.Packages {
		name := p.Identifier[strings.LastIndex(p.Identifier, "/")+1:]
		testkit.True(t, sums(t, dir)[name] == p.FileSHA256, "%s does not have the checksum %s", name, p.FileSHA256)
	}
}
