//go:build unix

package page_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// What a session says that it delivered leads nowhere else.
func TestOutputFiles(t *testing.T) {
	s, call, b := open(t)
	at := "/sessions/" + begin(call).session + "/output?path="
	for _, path := range []string{"../idea.txt", "/etc/passwd", "idea.txt/../.deepwork/config.yml",
		".deepwork/config.yml", "./idea.txt", "idea.txt\x00", ""} {
		b.do("GET", at+url.QueryEscape(path), nil).is(http.StatusNotFound)
	}

	file, secret := filepath.Join(s.root, "idea.txt"), filepath.Join(t.TempDir(), "secret")
	testkit.Write(t, secret, "not for pages")
	for name, replace := range map[string]func() error{
		"a link that leads out": func() error { return os.Symlink(secret, file) },
		"a folder":              func() error { return os.Mkdir(file, 0o755) },
		"a pipe":                func() error { return syscall.Mkfifo(file, 0o600) },
		"nothing":               func() error { return nil },
	} {
		testkit.Must(t, os.RemoveAll(file))
		testkit.Must(t, replace())
		done := make(chan answer, 1)
		go func() { done <- b.do("GET", at+"idea.txt", nil) }()
		select {
		case a := <-done:
			a.is(http.StatusConflict).lacks("not for pages")
		case <-time.After(time.Minute):
			t.Fatalf("%s: no answer", name)
		}
	}
	testkit.Must(t, os.RemoveAll(file))
	testkit.Write(t, filepath.Join(s.root, "there.txt"), "moved")
	testkit.Must(t, os.Symlink(filepath.Join(s.root, "there.txt"), file))
	testkit.Contains(t, b.get(at+"idea.txt"), "moved", "a link inside of the project is not followed")
}
