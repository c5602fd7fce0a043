package web

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session"
)

// of returns a request over a connection of a user.
func of(user int, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), socketKey{}, &socket{peer: peer{user: uint32(user)}}))
}

// The person stays logged in when the server is started again, on connections that are known to be the user's.
func TestALoginOutlastsItsServer(t *testing.T) {
	if !CanKnowPeers() {
		t.Skip("this system does not tell which user a connection is of")
	}
	file, me := filepath.Join(t.TempDir(), "20000"), os.Geteuid()
	users := func(r *http.Request) *http.Request { return of(me, r) }
	start := func(secret string) *Login { return logins(t, Options{Secret: secret, LoginFile: file}) }
	moved := func(c *http.Cookie, to *Login) *http.Cookie { // each server of the test has another port
		return &http.Cookie{Name: to.cookieName(), Value: c.Value}
	}
	l := start("first")
	c := testkit.Get(l.WithSecret(users(with(nil)), "first")).Must(t)
	kept := string(testkit.Get(os.ReadFile(file)).Must(t))
	testkit.Equal(t, kept, hashOf(c.Value), "the file has the cookie's hash, and not the cookie")
	if runtime.GOOS != "windows" {
		testkit.Equal(t, testkit.Get(os.Stat(file)).Must(t).Mode().Perm(), 0o600)
	}

	l = start("second")
	c = moved(c, l)
	who := testkit.Get(l.Caller(users(with(c)))).Must(t)
	testkit.True(t, who.Owner && who.Has(session.RightPerson), "%+v", who)
	testkit.Fails(t, testkit.Get(l.WithSecret(users(with(nil)), "first")).Err(), "not of the deepwork ui that runs")
	for name, r := range map[string]*http.Request{
		"another user":                 of(me+1, with(c)),
		"somebody behind a proxy":      users(proxied(with(c))),
		"nobody knows who":             with(c),
		"the hash instead of a cookie": users(with(&http.Cookie{Name: l.cookieName(), Value: kept})),
	} {
		testkit.Fails(t, testkit.Get(l.Caller(r)).Err(), "", "%s is logged in", name)
	}

	// Another login replaces it, also for the servers after this one, and a logout ends it.
	c2 := testkit.Get(l.WithSecret(users(with(nil)), "second")).Must(t)
	l = start("third")
	testkit.Fails(t, testkit.Get(l.Caller(users(with(moved(c, l))))).Err(), "", "the login before the last")
	testkit.Works(t, testkit.Get(l.Caller(users(with(moved(c2, l))))).Err(), "the last login")
	l.Logout(users(with(moved(c2, l))))
	l = start("fourth")
	testkit.Fails(t, testkit.Get(l.Caller(users(with(moved(c2, l))))).Err(), "", "after the logout")

	testkit.Must(t, os.WriteFile(file, []byte(hashOf("x")), 0o600))
	if runtime.GOOS != "windows" {
		testkit.Must(t, os.Chmod(file, 0o666))
		l = start("fifth")
		testkit.Fails(t, testkit.Get(l.Caller(users(with(&http.Cookie{Name: l.cookieName(), Value: "x"})))).Err(), "",
			"a file that everybody may write to")
	}
}

// Where it is not known whose a connection is, a login ends with its server.
func TestALoginEndsWithAServerThatKnowsNoUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "20000")
	testkit.Must(t, os.WriteFile(file, []byte(hashOf("of an earlier server")), 0o600))
	l := logins(t, Options{Secret: "s", LoginFile: file, UnknownPeers: true})
	old := &http.Cookie{Name: l.cookieName(), Value: "of an earlier server"}
	testkit.Fails(t, testkit.Get(l.Caller(with(old))).Err(), "", "the login of an earlier server")
	c := testkit.Get(l.WithSecret(with(nil), "s")).Must(t)
	testkit.Works(t, testkit.Get(l.Caller(with(c))).Err(), "its own login")
	testkit.FailsWith(t, testkit.Get(os.ReadFile(file)).Err(), os.ErrNotExist, "the login is kept")
}

// Another process of the user lets a browser in at a server that runs, once.
func TestASecretIsAdded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "20000")
	testkit.Must(t, AddSecret(file, "for an earlier server"))
	l := logins(t, Options{Secret: "s", LoginFile: file})
	users := func() *http.Request { return of(os.Geteuid(), with(nil)) }
	testkit.Fails(t, testkit.Get(l.WithSecret(users(), "for an earlier server")).Err(), "not of the deepwork ui")

	testkit.Must(t, AddSecret(file, "added"))
	testkit.Fails(t, testkit.Get(l.WithSecret(of(os.Geteuid()+1, with(nil)), "added")).Err(), "ssh -L", "another user")
	c := testkit.Get(l.WithSecret(users(), "added")).Must(t)
	testkit.Works(t, testkit.Get(l.Caller(of(os.Geteuid(), with(c)))).Err(), "who gave it")
	testkit.Fails(t, testkit.Get(l.WithSecret(users(), "added")).Err(), "was opened before")
	testkit.Works(t, testkit.Get(l.WithSecret(users(), "s")).Err(), "the server's own secret")
}
