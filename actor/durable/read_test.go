package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	must(t, os.WriteFile(path, []byte("12345"), 0o600))
	data, fi, err := Read(path, 5)
	if string(data) != "12345" || err != nil || fi.Size() != 5 {
		t.Errorf("%q, %v, %v", data, fi, err)
	}
	_, fi, err = Read(path, 4)
	if bad, ok := errors.AsType[*BadFileError](err); !ok || fi == nil || bad.Path != path || bad.Reason != "it has 5 bytes, over the limit of 4" {
		t.Errorf("one that is too long: %v, %v", fi, err)
	}
	if _, fi, err := Read(path+"2", 5); !errors.Is(err, fs.ErrNotExist) || fi != nil {
		t.Errorf("nothing: %v, %v", fi, err)
	}
	_, fi, err = Read(dir, 5)
	if bad, ok := errors.AsType[*BadFileError](err); !ok || fi != nil || bad.Reason != "it is a folder, not a file" ||
		!strings.Contains(err.Error(), dir) {
		t.Errorf("a folder: %v, %v", fi, err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Skip("no links here: ", err)
	}
	if _, _, err := Read(link, 5); err == nil || !strings.Contains(err.Error(), "it is a symbolic link") {
		t.Errorf("a link: %v", err)
	}
}

func TestKind(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		0o644: "a file", fs.ModeDir | 0o755: "a folder", fs.ModeSymlink: "a symbolic link", fs.ModeNamedPipe: "a named pipe",
		fs.ModeSocket: "a socket", fs.ModeDevice | fs.ModeCharDevice: "a device", fs.ModeIrregular: "something special",
	} {
		if got := Kind(mode); got != want {
			t.Errorf("%v is %q, want %q", mode, got, want)
		}
	}
}
