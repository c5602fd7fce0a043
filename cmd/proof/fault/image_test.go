//go:build unix

package fault

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// What was synced survives a loss of power, what was not does not: neither content
// nor names.
func TestPowerCut(t *testing.T) {
	for _, keepNames := range []bool{false, true} {
		t.Run(fmt.Sprint(keepNames), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), ".deepwork", "tmp")
			image := Image{t.TempDir(), []string{dir}}
			i := image.of(dir)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.MkdirAll(dir, 0o700))
			must(image.Reset())
			write := func(name, text string) {
				must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			sync := func(begin func(string, func() error) error, what string, failed error) {
				if err := begin(what, func() error { return failed }); err != failed {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"both.json", "torn.json", "failed.json"} {
				write(name, name+" 1")
				if name != "torn.json" {
					sync(i.syncing, filepath.Join(dir, name), nil)
				}
			}
			sync(i.naming, dir, nil)
			must(os.WriteFile(filepath.Join(dir, "failed.json"), []byte("failed.json 2"), 0o600)) // in place
			sync(i.syncing, filepath.Join(dir, "failed.json"), os.ErrInvalid)
			write("late.json", "late.json 1")
			sync(i.syncing, filepath.Join(dir, "late.json"), nil)
			sync(i.naming, dir, os.ErrInvalid)
			must(os.Rename(filepath.Join(dir, "both.json"), filepath.Join(dir, "moved.json")))
			must(image.CutPower(keepNames, true))
			want := map[string]string{"both.json": "both.json 1", "torn.json": "torn.", "failed.json": "failed.json 1"}
			if keepNames {
				want["late.json"] = "late.json 1"
				want["moved.json"] = want["both.json"]
				delete(want, "both.json")
			}
			check := func() {
				t.Helper()
				names, err := namesIn(dir)
				must(err)
				if len(names) != len(want) {
					t.Errorf("there are %v; expected %v", names, want)
				}
				for name, text := range want {
					got, err := os.ReadFile(filepath.Join(dir, name))
					if err != nil || string(got) != text {
						t.Errorf("%s holds %q, and is to hold %q (%v)", name, got, text, err)
					}
				}
			}
			check()
			// From there everything is on disk.
			must(image.CutPower(false, true))
			check()
		})
	}
}

// A file that is removed while the names on disk still mean it keeps its content there,
// though the system may use its inode for another file at once.
func TestPowerCutAfterAnInodeWasUsedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".deepwork", "tmp")
	image := Image{t.TempDir(), []string{dir}}
	i := image.of(dir)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o700))
	must(image.Reset())
	put := func(temp, name, text string) {
		t.Helper()
		path := filepath.Join(dir, temp)
		must(os.WriteFile(path, []byte(text), 0o600))
		must(i.syncing(path, func() error { return nil }))
		must(os.Rename(path, filepath.Join(dir, name)))
	}
	put("1.tmp", "record.json", "old")
	must(i.naming(dir, func() error { return nil }))
	put("2.tmp", "record.json", "new")
	for n := range 100 {
		put("3.tmp", fmt.Sprintf("other%d.json", n), "other")
	}
	must(image.CutPower(false, true))
	record := filepath.Join(dir, "record.json")
	if got, err := os.ReadFile(record); err != nil || string(got) != "old" {
		t.Errorf("the record holds %q, and is to hold what was synced under its name (%v)", got, err)
	}
	// What was on disk is lost when it is overwritten, whatever name the file has meanwhile.
	must(os.Rename(record, filepath.Join(dir, "spare.tmp")))
	must(i.writing(filepath.Join(dir, "spare.tmp")))
	must(os.WriteFile(record, []byte("newer"), 0o600))
	must(image.CutPower(false, false))
	if got, err := os.ReadFile(record); err != nil || len(got) != 0 {
		t.Errorf("the overwritten record holds %q (%v)", got, err)
	}
}
