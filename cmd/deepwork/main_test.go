package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/catalog/config"
	"deepwork/session/state/statetest"
)

const gorace = "atexit_sleep_ms=0"

// programs are the commands that this test binary is for the scripts and the tests, by name.
var programs = map[string]func(){"deepwork": main, "reviewer": scriptedReviewer, "coder": coder, "stepper": stepper}

// TestMain makes this test binary the command deepwork for the scripts and for whatever test starts a server.
func TestMain(m *testing.M) {
	// Under the race detector a process sleeps for a second before it ends, and the tests run hundreds of them.
	os.Setenv("GORACE", gorace)
	if !slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.bench=") }) {
		os.Setenv("GOGC", "400") // those that tests start live for a moment; figures are of the program as it is
	}
	_ = flag.Set("test.parallel", "4") // they wait for processes

	if programs[strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")] == nil { // else it is one of them
		dir, err := os.MkdirTemp("", "state")
		git := filepath.Join(dir, "gitconfig")
		if err == nil {
			err = cmp.Or(statetest.Prepare(dir, os.TempDir()),
				os.WriteFile(git, []byte("[user]\n\tname = Tester\n\temail = tester@example.com\n"), 0o600))
		}
		if err != nil {
			panic(err)
		}

		for name, value := range map[string]string{
			"GIT_CONFIG_NOSYSTEM": "1",
			"GIT_CONFIG_GLOBAL":   git,
			config.JobsFoldersEnv: "",
		} {
			os.Setenv(name, value)
		}
	}
	testscript.Main(m, programs)
}

// TestScripts drives the real command as a user does.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup:              setUpScript,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"agent":    agent,
			"exits":    exits,
			"capture":  capture,
			"ends":     ends,
			"fits":     fits,
			"receiver": receiver,
			"sql":      sqlCommand,
			"visit":    visit,
		},
	})
}

// setUpScript gives a script a browser, and a state and a config of its own.
func setUpScript(e *testscript.Env) error {
	e.Values[browserKey{}], _ = cookiejar.New(nil) // without options it does not fail
	e.Setenv("GORACE", gorace)
	e.Setenv("GOGC", os.Getenv("GOGC"))
	e.Setenv(config.JobsFoldersEnv, "")
	dir, err := os.MkdirTemp("", "state")
	if err != nil {
		return err
	}
	e.Defer(func() { os.RemoveAll(dir) })
	env, err := statetest.Write(dir, e.WorkDir)
	for name, value := range env {
		e.Setenv(name, value)
	}

	return err
}

// usage ends a script that uses a command wrongly.
func usage(ts *testscript.TestScript, wrong bool, text string) {
	if wrong {
		ts.Fatalf("usage: %s", text)
	}
}

// exits runs a command and checks its exit code: `exits 2 deepwork bogus`.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 2, "exits CODE COMMAND [ARG...]")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, err := 0, ts.Exec(args[1], args[2:]...)
	if exit, ok := err.(*exec.ExitError); ok {
		got, err = exit.ExitCode(), nil
	}
	ts.Check(err)
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// ends waits until a run has ended, and prints its status: `ends latest`.
func ends(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 1, "ends RUN")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ts.Check(ts.Exec("deepwork", "run", "status", args[0]))
		if !regexp.MustCompile(`(?m)^state: +(queued|running|waiting for .*)$`).MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("it has not ended")
		}
	}
}

// capture sets a variable to what a regular expression's group finds in the
// last command's stdout: `capture ID '^([0-9a-f]{8}) '`.
func capture(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "capture NAME REGEXP")
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	found := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("stdout has no %s", args[1])
	}
	ts.Setenv(args[0], found[1])
}

// receiver starts a server, sets a variable to its URL, and adds to a file one line for each request: `receiver URL
// FILE`. It refuses those below /fail/.
func receiver(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) != 2, "receiver NAME FILE")
	file := ts.MkAbs(args[1])
	var writing sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writing.Lock()
		defer writing.Unlock()
		body, _ := io.ReadAll(r.Body)
		line := fmt.Sprintf("%s %s title=%s click=%s %s", r.Method, r.URL.Path, r.Header.Get("Title"),
			r.Header.Get("Click"), strings.ReplaceAll(string(body), "\n", " "))
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = fmt.Fprintln(f, line)
			err = errors.Join(err, f.Close())
		}
		if err != nil || strings.HasPrefix(r.URL.Path, "/fail/") {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], server.URL)
}

// fits checks the width of every line of the last command's stdout, and whether there are colors:
// `fits 80`, `fits 80 colors`.
func fits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg || len(args) < 1, "fits COLUMNS [colors]")
	most, err := strconv.Atoi(args[0])
	ts.Check(err)
	shown := ts.ReadFile("stdout")
	for line := range strings.SplitSeq(shown, "\n") {
		if width := text.StringWidthWithoutEscSequences(line); width > most {
			ts.Fatalf("%d columns: %q", width, line)
		}
	}
	if has := strings.Contains(shown, "\x1b["); has != (len(args) > 1) {
		ts.Fatalf("colors: %v: %q", has, shown)
	}
}

// browserKey names the cookies of a script's browser.
type browserKey struct{}

// visit is the script command `visit FILE PATH STATUS [REGEXP]`: a browser opens a path of the server whose
// URL the file has, or will have, or with - that URL itself, and gets a page that matches. It keeps cookies
// and follows no redirect. `visit -new …` is another browser. A last argument names a variable for the first group.
func visit(ts *testscript.TestScript, neg bool, args []string) {
	browser := &http.Client{Jar: ts.Value(browserKey{}).(*cookiejar.Jar), Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if len(args) > 0 && args[0] == "-new" {
		browser.Jar, args = nil, args[1:]
	}
	usage(ts, neg || len(args) < 3 || len(args) > 5, "visit [-new] FILE PATH STATUS [REGEXP [VARIABLE]]")
	var text []byte
	for began := time.Now(); !strings.Contains(string(text), "\n"); time.Sleep(10 * time.Millisecond) {
		text, _ = os.ReadFile(ts.MkAbs(args[0]))
		if time.Since(began) > time.Minute {
			ts.Fatalf("%s has no URL: %q", args[0], text)
		}
	}
	url := strings.TrimSpace(string(text))
	if args[1] != "-" {
		url, _, _ = strings.Cut(url, "/login")
		url += args[1]
	}
	r, err := http.NewRequest(http.MethodGet, url, nil)
	ts.Check(err)
	r.Header.Set("Accept", "text/html")
	res, err := browser.Do(r)
	ts.Check(err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	ts.Check(err)
	got := res.Header.Get("Location") + "\n" + string(body)
	if want, err := strconv.Atoi(args[2]); err != nil || res.StatusCode != want ||
		len(args) > 3 && !regexp.MustCompile(args[3]).MatchString(got) {
		ts.Fatalf("%s: %s\n%s", url, res.Status, got)
	}
	if len(args) > 4 {
		ts.Setenv(args[4], regexp.MustCompile(args[3]).FindStringSubmatch(got)[1])
	}
}
