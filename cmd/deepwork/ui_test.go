package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// browserKey names the cookies of a script's browser.
type browserKey struct{}

func newBrowser(e *testscript.Env) {
	jar, _ := cookiejar.New(nil) // without options it does not fail
	e.Values[browserKey{}] = jar
}

// visit is the script command `visit FILE PATH STATUS [REGEXP]`: a browser opens a path of the server whose
// URL the file has, or will have, or with - that URL itself, and gets a page that matches. It keeps cookies
// and follows no redirect. `visit -new …` is another browser. A last argument names a variable for the first group.
func visit(ts *testscript.TestScript, neg bool, args []string) {
	browser := &http.Client{Jar: ts.Value(browserKey{}).(*cookiejar.Jar), Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if len(args) > 0 && args[0] == "-new" {
		browser.Jar, args = nil, args[1:]
	}
	if neg || len(args) < 3 || len(args) > 5 {
		ts.Fatalf("usage: visit [-new] FILE PATH STATUS [REGEXP [VARIABLE]]")
	}
	var text []byte
	for began := time.Now(); !strings.Contains(string(text), "\n"); time.Sleep(10 * time.Millisecond) {
		if text, _ = os.ReadFile(ts.MkAbs(args[0])); time.Since(began) > time.Minute {
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
	if want, err := strconv.Atoi(args[2]); err != nil || res.StatusCode != want || len(args) > 3 && !regexp.MustCompile(args[3]).MatchString(got) {
		ts.Fatalf("%s: %s\n%s", url, res.Status, got)
	}
	if len(args) > 4 {
		ts.Setenv(args[4], regexp.MustCompile(args[3]).FindStringSubmatch(got)[1])
	}
}
