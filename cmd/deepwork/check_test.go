package main

import (
	"bytes"
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/session"
	"deepwork/session/state"
)

// falsify is the script command `falsify FILE REGEXP REPLACEMENT [unsealed]`: it
// replaces what matches in a record or a definition, and seals it as this
// installation does, unless it is to be left unsealed.
func falsify(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: falsify FILE REGEXP REPLACEMENT [unsealed]")
	}
	file := ts.MkAbs(args[0])
	text, err := os.ReadFile(file)
	ts.Check(err)
	re := regexp.MustCompile(args[1])
	if !re.Match(text) {
		ts.Fatalf("%s has no %s", args[0], args[1])
	}
	text = re.ReplaceAllLiteral(text, []byte(args[2]))
	if len(args) == 3 {
		text = reseal(ts, file, text)
	}
	ts.Check(os.WriteFile(file, text, 0o600))
}

// sqlCommand is the script command `sql FILE STATEMENT`, which changes a database.
func sqlCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql FILE STATEMENT")
	}
	db, err := sql.Open("sqlite", ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close()
	_, err = db.Exec(args[1])
	ts.Check(err)
}

// reseal seals what a file of either kind is to hold.
func reseal(ts *testscript.TestScript, file string, text []byte) []byte {
	dir := filepath.Dir(filepath.Dir(file)) // of the state, where the file is a definition
	if filepath.Base(dir) == ".deepwork" {
		root, err := state.Canonical(filepath.Dir(dir))
		ts.Check(err)
		dir = filepath.Join(ts.Getenv(state.Env), "projects", state.Name(root))
	}
	f, err := state.Open(dir)
	ts.Check(err)
	sign := func(content []byte) string {
		seal, err := f.Sign(filepath.Base(file), content)
		ts.Check(err)
		return seal
	}
	if _, data, is := bytes.Cut(text, []byte("\n")); is && bytes.HasPrefix(text, []byte("hmac-sha256:")) {
		return slices.Concat([]byte(sign(data)+"\n"), data)
	}
	n := bytes.LastIndex(text, []byte(",\n  \"checksum\": \""))
	if n < 0 {
		ts.Fatalf("it has no checksum")
	}
	return slices.Concat(text[:n], []byte(",\n  \"checksum\": \""+sign(text[:n])+"\"\n}"))
}

// What is only under way is believed by nobody, what stays is.
func TestCheckConfirms(t *testing.T) {
	defer func(was []time.Duration) { checkPauses = was }(checkPauses)
	checkPauses = []time.Duration{0, 0}
	for name, c := range map[string]struct {
		live, note   bool
		looks, found int // expected
	}{"while a server runs": {true, false, 3, 1}, "a note": {true, true, 1, 1}, "without a server": {false, false, 1, 2}} {
		looks := 0
		r, err := confirmed(t.Context(), func(context.Context) (r session.Report, err error) {
			looks++
			r.Live = c.live
			if c.note {
				r.Note("a", "stays", "")
				return r, nil
			}
			r.Fault("a", "stays", "")
			if looks < 3 {
				r.Fault("b", "is gone in the end", "")
			}
			if looks > 1 {
				r.Fault("c", "came later", "")
			}
			return r, nil
		})
		if err != nil || len(r.Findings) != c.found || r.Findings[0].Where != "a" || looks != c.looks {
			t.Errorf("%s, after %d looks: %+v, %v", name, looks, r.Findings, err)
		}
	}
}
