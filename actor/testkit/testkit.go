package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deepwork/actor/process"
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A Result is what a call returned.
type Result[T any] struct {
	value T
	err   error
}

// Get takes the results of a call: testkit.Get(os.ReadFile(name)).Must(t) is the file's text.
func Get[T any](value T, err error) Result[T] { return Result[T]{value, err} }

// Must returns the value, or ends the test if the call returned an error.
func (r Result[T]) Must(t testing.TB) T {
	t.Helper()
	Must(t, r.err)
	return r.value
}

// Err returns the error of a call whose value is not needed.
func (r Result[T]) Err() error { return r.err }

// Equal fails the test if two values are not equal. what, if given, is a format and its arguments that
// describe the values, as in the functions below.
func Equal[T comparable](t testing.TB, got, want T, what ...any) {
	t.Helper()
	if got != want {
		t.Error(about(what) + different(got, want))
	}
}

// Same fails the test if two values differ at any depth. Empty lists and maps equal nil ones.
func Same[T any](t testing.TB, got, want T, what ...any) {
	t.Helper()
	a, b := reflect.ValueOf(got), reflect.ValueOf(want)
	empty := (a.Kind() == reflect.Slice || a.Kind() == reflect.Map) && a.Len() == 0 && b.Len() == 0
	if !empty && !reflect.DeepEqual(got, want) {
		t.Error(about(what) + different(got, want))
	}
}

// Contains fails the test if a text does not contain another one.
func Contains(t testing.TB, text, want string, what ...any) {
	t.Helper()
	ContainsAll(t, text, []string{want}, what...)
}

// ContainsAll fails the test for each of several texts that a text does not contain.
func ContainsAll(t testing.TB, text string, wants []string, what ...any) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%s%q is not in: %s", about(what), want, text)
		}
	}
}

// Lacks fails the test for each of several texts that a text contains.
func Lacks(t testing.TB, text string, bad []string, what ...any) {
	t.Helper()
	for _, b := range bad {
		if strings.Contains(text, b) {
			t.Errorf("%s%q is in: %s", about(what), b, text)
		}
	}
}

// Fails fails the test if there is no error, or if the error does not contain want.
func Fails(t testing.TB, err error, want string, what ...any) {
	t.Helper()
	if err == nil {
		t.Error(about(what) + "there is no error")
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("%sthe error does not say %q: %v", about(what), want, err)
	}
}

// FailsWith fails the test if err is not want, as reported by errors.Is.
func FailsWith(t testing.TB, err, want error, what ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%sthe error is %v, want %v", about(what), err, want)
	}
}

// Works fails the test if there is an error.
func Works(t testing.TB, err error, what ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s%v", about(what), err)
	}
}

// True fails the test if holds is false. The message says what is wrong in that case.
func True(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

// Need is True for conditions that the rest of the test needs: it ends the test.
func Need(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}

// about returns the beginning of a message.
func about(what []any) string {
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprintf(what[0].(string), what[1:]...) + ": "
}

// different says how values differ, field by field if they have fields.
func different(got, want any) string {
	switch reflect.Indirect(reflect.ValueOf(want)).Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Array:
		return "(-want +got)\n" + cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }))
	}
	return fmt.Sprintf("got %#v, want %#v", got, want)
}

// Eventually polls until problem returns "", at growing intervals. After three minutes it ends the test.
func Eventually(t testing.TB, problem func() string) {
	t.Helper()
	pause := 2 * time.Millisecond
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(pause) {
		if p := problem(); p == "" {
			return
		} else if time.Now().After(end) {
			t.Fatal("after three minutes: ", p)
		}
		pause = min(pause*5/4, 50*time.Millisecond)
	}
}

// Until polls until ok reports true. After three minutes it ends the test.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	Eventually(t, func() string {
		if ok() {
			return ""
		}
		return "not " + what
	})
}

// Dir returns the path, without symlinks, of a temporary folder.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	Must(t, err)
	return dir
}

// Write writes a file and the folders above it.
func Write(t testing.TB, path, text string) {
	t.Helper()
	path = filepath.FromSlash(path)
	Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	Must(t, os.WriteFile(path, []byte(text), 0o644))
}

// WriteAll writes files below root.
func WriteAll(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		Write(t, filepath.Join(root, name), text)
	}
}

// Golden compares a text with a file's content, which it first writes if update is set.
func Golden(t testing.TB, file, got string, update bool) {
	t.Helper()
	if update {
		Write(t, file, got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}

	want := strings.ReplaceAll(string(data), "\r\n", "\n")
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	line := 0
	for line < min(len(g), len(w))-1 && g[line] == w[line] {
		line++
	}
	t.Fatalf("%s:%d (go test -update rewrites it):\n got  %s\n want %s", file, line+1, g[line], w[line])
}

// Git runs git in dir like TryGit. It must succeed.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := TryGit(dir, args...)
	Must(t, err)
	return out
}

// TryGit runs git in dir, with an author, and returns its output without the last line break. It does not
// pass on GIT_DIR and GIT_INDEX_FILE.
func TryGit(dir string, args ...string) (string, error) {
	set := []string{"-c", "user.name=Tester", "-c", "user.email=tester@example.com", "-c", "init.defaultBranch=main",
		"-c", "init.templateDir=", "-c", "maintenance.auto=false", "-c", "protocol.file.allow=always"}
	cmd := exec.Command("git", append(set, args...)...)
	cmd.Dir = dir
	cmd.Env = process.Without(os.Environ(), "GIT_DIR", "GIT_INDEX_FILE")
	cmd.Stderr = new(Log)
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s in %s: %w: %s", strings.Join(args, " "), dir, err, cmd.Stderr)
	} else if args[0] == "init" || args[0] == "config" || args[0] == "remote" {
		Age(filepath.Join(dir, ".git", "config"))
	}

	return strings.TrimRight(string(out), "\n"), err
}

// Age makes a git config, if it exists, look old. The program reads a new one before each command.
func Age(config string) {
	old := time.Now().Add(-time.Hour)
	os.Chtimes(config, old, old)
}

// A Log collects what is written to it and may be read at the same time.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns how often text occurs.
func (l *Log) Count(text string) int { return strings.Count(l.String(), text) }
