package main

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/session"
)

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
