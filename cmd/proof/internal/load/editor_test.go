package load

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// However a file is saved, what stands there then is what the book has.
func TestEveryWayOfSavingSaves(t *testing.T) {
	root := t.TempDir()
	e := &editor{root: root, book: newBook(2, 1), wrong: wrong{newWrongs()}}
	if err := e.layOut(); err != nil {
		t.Fatal(err)
	}
	base := 1
	check := func(how string) {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(jobDir(root, 0), "job.yml"))
		if err != nil {
			t.Fatalf("%s: %v", how, err)
		}
		sum := sha256.Sum256(data)
		saves := e.book.files[0][0].saves
		if n := e.book.saveOf(0, hex.EncodeToString(sum[:])); n != len(saves) {
			t.Errorf("%s: what stands there is save %d of %d:\n%s", how, n, len(saves), data)
		}
	}
	for range 5 { // each after each other one
		for _, w := range ways {
			var err error
			if w.do == nil {
				err = e.save(0, 0, w, base)
			} else {
				base = e.book.next(0)
				err = e.save(0, 0, w, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			check(w.name)
		}
	}
	if err := cleanUp(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(jobDir(root, 0)); err == nil {
		t.Error("the job is still there")
	}
}

// A job that was away for longer than servers wait excuses the calls of that time, and
// no others.
func TestAnEditorThatIsHeldUp(t *testing.T) {
	e := &editor{root: t.TempDir(), book: newBook(2, 1), wrong: wrong{newWrongs()}}
	if err := e.layOut(); err != nil {
		t.Fatal(err)
	}
	slow := func(d time.Duration) way {
		return way{"slow", true, func(path, text string, _ int) error { time.Sleep(d); return writeWhole(path, text, 0) }}
	}
	before, other := e.book.mark(0, 0), e.book.mark(1, 0)
	if err := e.save(0, 0, slow(0), 0); err != nil {
		t.Fatal(err)
	}
	if e.book.wasAway(before) {
		t.Skip("the machine stands still")
	}
	if err := e.save(0, 0, slow(awayFor+time.Millisecond), 0); err != nil {
		t.Fatal(err)
	}
	if !e.book.wasAway(before) || e.book.wasAway(other) || e.book.wasAway(e.book.mark(0, 0)) {
		t.Error("the calls of that time are not told from others")
	}
}
