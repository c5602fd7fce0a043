package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// packed packs stand-ins for the binaries, which have the time at, and returns the folder.
func packed(t *testing.T, at time.Time) string {
	t.Helper()
	r := release{version: "1.2.3", commit: "c0ffee", time: time.Unix(1700000000, 0).UTC(), from: t.TempDir(), to: filepath.Join(t.TempDir(), "out")}
	paths := []string{filepath.Join(r.from, "common", "THIRD_PARTY_LICENSES"), filepath.Join(r.from, "common", "README.md")}
	for _, p := range platforms {
		paths = append(paths, r.binary(p), filepath.Join(r.from, p.os+"-"+p.arch, "sbom.json"))
	}
	for _, path := range paths {
		rel := testkit.Get(filepath.Rel(r.from, path)).Must(t)
		check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		check(t, os.WriteFile(path, []byte("content of "+rel), 0o600))
		check(t, os.Chtimes(path, at, at))
	}
	check(t, r.write())
	return r.to
}

func check(t *testing.T, err error) {
	t.Helper()
	testkit.Must(t, err)
}

// The same input in another folder, with other times and permissions, gives the same bytes.
func TestSameBytes(t *testing.T) {
	one, two := sums(t, packed(t, time.Unix(1, 0))), sums(t, packed(t, time.Now()))
	testkit.True(t, len(one) >= 20 && maps.Equal(one, two), "one has %d files:\n%v\nthe other %d:\n%v", len(one), one, len(two), two)
}

// An entry has the time of the commit, the owner root and only the permissions that are meant.
func TestEntriesAreFixed(t *testing.T) {
	f := testkit.Get(os.Open(filepath.Join(packed(t, time.Now()), "deepwork_1.2.3_linux_amd64.tar.gz"))).Must(t)
	defer f.Close()
	z, err := gzip.NewReader(f)
	check(t, err)
	modes := map[string]int64{}
	for entries := tar.NewReader(z); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
		modes[h.Name] = h.Mode
		testkit.True(t, h.Uid == 0 && h.Gid == 0 && h.Uname == "" && h.ModTime.Unix() == 1700000000, "%s is of %d:%d %q at %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
	}
	top := "deepwork_1.2.3_linux_amd64/"
	want := map[string]int64{top + "deepwork": 0o755, top + "README.md": 0o644, top + "THIRD_PARTY_LICENSES": 0o644}
	testkit.True(t, maps.Equal(modes, want), "got %v, want %v", modes, want)
}

// The README of an archive says first where the files are that it links to.
func TestArchiveReadme(t *testing.T) {
	dir := packed(t, time.Now())
	for _, p := range platforms {
		r := release{version: "1.2.3"}
		text := testkit.Get(os.ReadFile(filepath.Join(unpacked(t, dir, r.name(p)), "README.md"))).Must(t)
		note, rest, _ := strings.Cut(string(text), "\n\n")
		testkit.ContainsAll(t, note, []string{"1.2.3 for " + p.os + "/" + p.arch, "commit c0ffee", "`" + p.program() + "`", "https://"}, "%s: the README begins without", r.name(p))
		if want := "content of " + filepath.Join("common", "README.md"); rest != want {
			t.Errorf("%s: the README goes on with %q, not %q", r.name(p), rest, want)
		}
	}
}

// A release is never written over another.
func TestDoesNotOverwrite(t *testing.T) {
	r := release{to: t.TempDir()}
	check(t, writeZip(filepath.Join(r.to, "a.zip"), nil, r.time))
	testkit.FailsWith(t, writeZip(filepath.Join(r.to, "a.zip"), nil, r.time), os.ErrExist)
}

// Everybody may read the files of the image, and none is a program: those are in its layers.
func TestImageIsReadable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no such permissions")
	}
	check(t, filepath.WalkDir(filepath.Join(packed(t, time.Now()), "image"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info := testkit.Get(d.Info()).Must(t)
		testkit.Equal(t, info.Mode().Perm(), 0o644, "%s has the permissions %v", path, info.Mode())
		return nil
	}))
}
