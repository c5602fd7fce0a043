package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/durable"
	"deepwork/actor/testkit"
	"deepwork/transport/web"
)

// A project always has the same port. Pages of another project or store, and read-only ones, have their own logins.
func TestAProjectHasAPortOfItsOwn(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	t.Setenv("DEEPWORK_STATE_DIR", filepath.Join(t.TempDir(), "state"))
	type place struct {
		port  int
		login string
	}
	at := func(root, store string, f uiFlags) place {
		t.Helper()
		o := web.Options{Port: f.port}
		testkit.Must(t, (&ui{app: &app{store: store}, flags: f}).place(root, &o))
		return place{o.Port, o.LoginFile}
	}
	own := uiFlags{anyPort: true}
	first := at(root, "", own)
	testkit.Equal(t, at(root, "", own), first, "the second time")
	testkit.True(t, first.port >= 20000 && first.port < 30000,
		"port %d may be that of a connection, or needs a right", first.port)
	testkit.True(t, strings.HasPrefix(filepath.Base(first.login), "2"), "the login is kept in %s", first.login)

	logins := map[string]bool{first.login: true}
	for name, p := range map[string]place{
		"another project":     at(other, "", own),
		"another store":       at(root, "postgres://db/x", own),
		"pages to read":       at(root, "", uiFlags{anyPort: true, readOnly: true}),
		"a port":              at(root, "", uiFlags{port: 8765}),
		"pages to read there": at(root, "", uiFlags{port: 8765, readOnly: true}),
	} {
		testkit.True(t, !logins[p.login], "%s has the logins of others: %s", name, p.login)
		logins[p.login] = true
	}
	testkit.Equal(t, at(root, "", uiFlags{port: 8765}).port, 8765)
	testkit.Equal(t, at(root, "", uiFlags{}), place{}, "any free port")

	o := &web.Options{Port: first.port, LoginFile: first.login}
	testkit.True(t, !taken(o), "nobody serves at %d", first.port)
	testkit.Must(t, os.WriteFile(first.login+lockEnd, nil, 0o600)) // as a deepwork ui leaves it
	testkit.True(t, !taken(o), "nobody serves at %d any more", first.port)
}

// One that ends, or listens in another container, does not answer here: its URL would lead nowhere.
func TestOnlyAnAnsweringUITakesAPort(t *testing.T) {
	t.Setenv("DEEPWORK_STATE_DIR", filepath.Join(t.TempDir(), "state"))
	listener := testkit.Get(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	o := &web.Options{Port: listener.Addr().(*net.TCPAddr).Port}
	testkit.Must(t, (&ui{app: &app{}}).place(t.TempDir(), o))
	testkit.True(t, !taken(o), "another program is taken for a deepwork ui")

	lock := testkit.Get(durable.TryLock(o.LoginFile + lockEnd)).Must(t)
	testkit.True(t, taken(o), "it serves at %d", o.Port)
	testkit.Must(t, listener.Close())
	testkit.True(t, !taken(o), "nobody listens at %d any more", o.Port)
	testkit.Must(t, lock.Unlock())
}
