package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestIgnore(t *testing.T) {
	lines := []string{"tmp/", "logs/"}
	for name, c := range map[string]struct {
		there, want string
		added       bool
	}{
		"empty":               {"", "tmp/\nlogs/\n", true},
		"mine":                {"mine\n", "mine\ntmp/\nlogs/\n", true},
		"no line break":       {"mine\ntmp/", "mine\ntmp/\nlogs/\n", true},
		"of Windows":          {"mine\r\ntmp/", "mine\r\ntmp/\r\nlogs/\r\n", true},
		"all there":           {"logs/\n  tmp/  \n", "logs/\n  tmp/  \n", false},
		"with slashes before": {"/logs/\n/tmp/\n", "/logs/\n/tmp/\n", false},
		"a longer one":        {"tmp/x\n", "tmp/x\ntmp/\nlogs/\n", true},
	} {
		path := filepath.Join(t.TempDir(), ".gitignore")
		testkit.Must(t, os.WriteFile(path, []byte(c.there), 0o644))
		added, err := Ignore(path, lines)
		testkit.True(t, added == c.added && err == nil, "%s: %t, %v", name, added, err)
		testkit.Equal(t, string(testkit.Get(os.ReadFile(path)).Must(t)), c.want, "%s: it holds", name)
		if added, err := Ignore(path, lines); added || err != nil {
			t.Errorf("%s, again: %t, %v", name, added, err)
		}
	}
}

func TestIgnoreMakesAndRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", ".deepwork", ".gitignore")
	if added, err := Ignore(path, Ignored()); !added || err != nil {
		t.Errorf("%t, %v", added, err)
	}
	testkit.Equal(t, string(testkit.Get(os.ReadFile(path)).Must(t)), "tmp/\n", "it holds")
	if added, err := Ignore(dir, Ignored()); added || err == nil || !strings.Contains(err.Error(), dir+": it is a folder, not a file") {
		t.Errorf("a folder: %t, %v", added, err)
	}
	link, profile := filepath.Join(dir, "link"), filepath.Join(dir, "profile")
	if os.WriteFile(profile, []byte("mine\n"), 0o600) == nil && os.Symlink(profile, link) == nil {
		added, err := Ignore(link, Ignored())
		if text, _ := os.ReadFile(profile); added || err == nil || string(text) != "mine\n" {
			t.Errorf("through a link: %v, %q", err, text)
		}
	}
	hard := filepath.Join(dir, "hard")
	if os.Link(profile, hard) == nil {
		added, err := Ignore(hard, Ignored())
		if text, _ := os.ReadFile(profile); !added || err != nil || string(text) != "mine\n" {
			t.Errorf("a hard link: %v, %q", err, text)
		}
	}
	if added, err := Ignore(filepath.Join(path, "in", ".gitignore"), Ignored()); added || err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("in a file: %t, %v", added, err)
	}
}
