package follow

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

var must = testkit.Must

func TestStatTellsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("12345"), 0o644))
	for name, want := range map[string]Kind{
		dir: Dir, file: Regular, filepath.Join(dir, "none"): Absent,
		filepath.Join(file, "below"): Absent,
	} {
		got := Path(name).Stat()
		if want == Absent && runtime.GOOS == "windows" && got.Kind == Failed {
			continue // it has other words for names that cannot be
		}
		testkit.Equal(t, got.Kind, want, "%q is %+v", name, got)
	}
	if Path("").Stat().Kind == Regular {
		t.Error("the zero Path is a file")
	}
	fi := testkit.Get(os.Stat(file)).Must(t)
	s := Path(file).Stat()
	testkit.Equal(t, s.Size, 5)
	testkit.Equal(t, s.Mod, fi.ModTime().UnixNano())
	if s.Changed().Before(fi.ModTime()) || s.Age(s.Changed().Add(-time.Hour)) != 0 {
		t.Errorf("changed at %v", s.Changed())
	}
}

func TestEveryChangeGivesAnotherStamp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("12345"), 0o644))
	p := Path(file)
	last := p.Stat()
	if p.Stat() != last {
		t.Fatal("two looks differ")
	}
	past := time.Now().Add(-time.Hour)
	for _, change := range []struct {
		name string
		make func() error
	}{
		{"size", func() error { return os.WriteFile(file, []byte("123456"), 0o644) }},
		{"time", func() error { return os.Chtimes(file, past, past) }},
		{"replacement", func() error {
			return errors.Join(os.WriteFile(file+"2", []byte("123456"), 0o644), os.Rename(file+"2", file))
		}},
	} {
		must(t, change.make())
		now := p.Stat()
		if now == last {
			t.Errorf("%s: the same stamp", change.name)
		}
		last = now
	}
	must(t, os.Remove(file))
	testkit.Equal(t, p.Stat().Kind, Absent, "still there")
}

func TestReadGivesTheWholeFileOrNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, content := range []string{"", "12345"} {
		must(t, os.WriteFile(file, []byte(content), 0o644))
		data, s, err := Path(file).Read(5)
		if err != nil || string(data) != content || s != Path(file).Stat() {
			t.Errorf("%q: %q %+v %v", content, data, s, err)
		}
		if !Path(file).same(s, sha256.Sum256([]byte(content))) {
			t.Error("not the same as itself")
		}
		if Path(file).same(s, sha256.Sum256([]byte("other"))) {
			t.Error("the same as another content")
		}
	}
	if _, _, err := Path(file).Read(4); !errors.Is(err, ErrMoving) {
		t.Errorf("beyond the limit: %v", err)
	}
	for _, name := range []string{dir, filepath.Join(dir, "none")} {
		if _, _, err := Path(name).Read(10); !errors.Is(err, ErrMoving) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRacyContentIsComparedItself(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("12345"), 0o644))
	data, st, err := Path(file).Read(5)
	must(t, err)
	// Another write that leaves the same stamp cannot be brought about, but a File
	// with another sum is the same thing seen from the other side.
	f := &File[string]{Track: Track{Path: Path(file), Stamp: st, Racy: true}, Phase: Present, sum: sha256.Sum256(data)}
	if f.Stale() {
		t.Error("the same content is stale")
	}
	f.sum[0]++
	if !f.Stale() {
		t.Error("other content under the same stamp is not stale")
	}
	if f.Racy = false; f.Stale() {
		t.Error("the content of an old file is read again")
	}
}
