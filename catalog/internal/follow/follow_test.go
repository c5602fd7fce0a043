package follow

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"deepwork/actor/testkit"
)

var must = testkit.Must

func TestStatTellsWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, []byte("12345"), 0o644))
	for name, want := range map[string]Kind{
		dir:                          Dir,
		file:                         Regular,
		filepath.Join(dir, "none"):   Absent,
		filepath.Join(file, "below"): Absent,
	} {
		got := Path(name).Stat()
		if want == Absent && runtime.GOOS == "windows" && got.Kind == Failed {
			continue // it has other words for names that cannot be
		}
		testkit.Equal(t, got.Kind, want, "%q is %+v", name, got)
	}
	testkit.True(t, Path("").Stat().Kind != Regular, "the zero Path is a file")

	fi := testkit.Get(os.Stat(file)).Must(t)
	s := Path(file).Stat()
	testkit.Equal(t, s.Size, 5)
	testkit.Equal(t, s.Mod, fi.ModTime().UnixNano())
	testkit.True(t, !s.Changed().Before(fi.ModTime()) && s.Age(s.Changed().Add(-time.Hour)) == 0, "changed at %v",
		s.Changed())
}

func TestEveryChangeGivesAnotherStamp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("12345"), 0o644))
	p := Path(file)
	last := p.Stat()
	testkit.Need(t, p.Stat() == last, "two looks differ")

	past := time.Now().Add(-time.Hour)
	changed := func(what string, err error) {
		must(t, err)
		testkit.True(t, p.Stat() != last, "%s: the same stamp", what)
		last = p.Stat()
	}
	changed("size", os.WriteFile(file, []byte("123456"), 0o644))
	changed("time", os.Chtimes(file, past, past))
	changed("replacement", errors.Join(os.WriteFile(file+"2", []byte("123456"), 0o644), os.Rename(file+"2", file)))
	must(t, os.Remove(file))
	testkit.Equal(t, p.Stat().Kind, Absent, "still there")
}

func TestReadGivesTheWholeFileOrNothing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, content := range []string{"", "12345"} {
		must(t, os.WriteFile(file, []byte(content), 0o644))
		data, s, err := Path(file).Read(5)
		testkit.Need(t, err == nil, "%q: %q %+v %v", content, data, s, err)
		testkit.Equal(t, string(data), content)
		testkit.Equal(t, s, Path(file).Stat())
		testkit.True(t, Path(file).unchanged(s, sha256.Sum256([]byte(content))), "not the same as itself")
		testkit.True(t, !Path(file).unchanged(s, sha256.Sum256([]byte("other"))), "the same as another content")
	}
	for name, limit := range map[string]int64{file: 4, dir: 10, filepath.Join(dir, "none"): 10} {
		_, _, err := Path(name).Read(limit)
		testkit.FailsWith(t, err, ErrMoving, "%s", name)
	}
}

func TestRacyContentIsComparedItself(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("12345"), 0o644))
	data, st, err := Path(file).Read(5)
	must(t, err)

	// Another write that leaves the same stamp cannot be brought about, but a File with another sum is the
	// same thing seen from the other side.
	f := &File[string]{Track: Track{Path: Path(file), Stamp: st, Racy: true}, Phase: Present, sum: sha256.Sum256(data)}
	testkit.True(t, !f.Stale(), "the same content is stale")

	f.sum[0]++
	testkit.True(t, f.Stale(), "other content under the same stamp is not stale")
	f.Racy = false
	testkit.True(t, !f.Stale(), "the content of an old file is read again")
}

// A look gives what is in use, and when to look again.
func TestAFileIsFollowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	refusal := error(nil)
	format := &Format[string]{
		Limit: 20, Grace: time.Second, Refuse: func() error { return refusal },
		Parse: func(data []byte) (*string, error) {
			if strings.HasPrefix(string(data), "bad") {
				return nil, errors.New("no good")
			}
			return new(string(data)), nil
		},
		Unreadable: func(s Stamp, err error) error { return fmt.Errorf("kind %d, size %d, %v", s.Kind, s.Size, err) },
	}
	save := func(text string) { must(t, os.WriteFile(file, []byte(text), 0o644)) }
	synctest.Test(t, func(t *testing.T) {
		f := &File[string]{Track: Track{Path: Path(file)}}
		for _, c := range []struct {
			what  string
			do    func()
			after time.Duration
			want  string // phase, content, fault and when it is due
		}{
			{"nothing", func() {}, 0, "gone"},
			{"a save", func() { save("one\n") }, 0, "moving, due in 10ms"},
			{"a while later", func() {}, 9 * time.Millisecond, "moving, due in 1ms"},
			{"settled", func() {}, time.Millisecond, "present one, due in 40ms"},
			{"old", func() {}, 40 * time.Millisecond, "present one"},
			{"a fault", func() { save("bad\n") }, 0, "moving one, due in 10ms"},
			{"a fault that may be half of a save", func() {}, 10 * time.Millisecond, "moving one, due in 40ms"},
			{"a fault that stays", func() {}, 40 * time.Millisecond, "present one: no good"},
			{"what was there", func() { save("one\n") }, 0, "moving one: no good, due in 10ms"},
			{"settled again", func() {}, 50 * time.Millisecond, "present one"},
			{"its beginning", func() { save("on") }, 0, "moving one, due in 10ms"},
			{"its beginning, settled", func() {}, 10 * time.Millisecond, "torn one, due in 40ms"},
			{"its beginning, compared", func() {}, 489 * time.Millisecond, "torn one, due in 1ms"},
			{"its beginning, which is all", func() {}, time.Millisecond, "present on"},
			{"too much", func() { save(strings.Repeat("x", 21)) }, 0, "present on: kind 2, size 21, <nil>"},
			{"as much as may be", func() {
				save(strings.Repeat("x", 20))
			}, 0, "moving on: kind 2, size 21, <nil>, due in 10ms"},
			{"settled at last", func() {}, 50 * time.Millisecond, "present " + strings.Repeat("x", 20)},
			{"refused", func() {
				refusal = errors.New("not now")
				save("two\n")
			}, 0, "present " + strings.Repeat("x", 20) + ": kind 2, size 4, not now, due in 1s"},
			{"refused again", func() {}, time.Second,
				"present " + strings.Repeat("x", 20) + ": kind 2, size 4, not now, due in 1s"},
			{"allowed, unchanged", func() { refusal = nil }, time.Second, "present two"},
			{"another", func() { save("three\n") }, 0, "moving two, due in 10ms"},
			{"a third", func() {}, 50 * time.Millisecond, "present three"},
			{"removed", func() { must(t, os.Remove(file)) }, 0, "vanished three, due in 1s"},
			{"removed a while", func() {}, 999 * time.Millisecond, "vanished three, due in 1ms"},
			{"gone", func() {}, time.Millisecond, "gone"},
		} {
			c.do()
			time.Sleep(c.after)
			f = f.Look(format)
			got := []string{"gone", "present", "moving", "torn", "vanished"}[f.Phase]
			if f.Good != nil {
				got += " " + strings.TrimSpace(*f.Good)
			}
			if f.Bad != nil {
				got += ": " + f.Bad.Error()
			}
			if !f.Due.IsZero() {
				got += ", due in " + time.Until(f.Due).String()
			}
			testkit.Equal(t, got, c.want, "%s", c.what)
			testkit.True(t, !f.Due.IsZero() || f.Look(format) == f, "%s: another look gives another file", c.what)
			testkit.Equal(t, f.Stale(), f.Phase == Moving, "%s: stale", c.what)
			testkit.Equal(t, f.Awake(f.Due.Add(-1)), false)
			testkit.Equal(t, f.Awake(f.Due), !f.Due.IsZero())
		}

		// One that never settles is read all the same where nothing else can be used.
		looks := 0
		for ; f.Phase != Present; looks++ {
			save(fmt.Sprint(looks, "\n"))
			f = f.Look(format)
			time.Sleep(9 * time.Millisecond)
		}
		testkit.Equal(t, looks, 18, "looks, 9 ms apart")
	})
}
