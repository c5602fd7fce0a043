package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"deepwork/session"
)

// falsify is the script command `falsify FILE REGEXP REPLACEMENT [unsealed]`: it
// replaces what matches in a record or a definition, and renews its checksum
// unless it is to be left unsealed.
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
		text = reseal(ts, text)
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

// reseal gives a file of either kind the checksum of what it holds.
func reseal(ts *testscript.TestScript, text []byte) []byte {
	sum := func(b []byte) string {
		h := sha256.Sum256(b)
		return hex.EncodeToString(h[:])
	}
	if rest, ok := bytes.CutPrefix(text, []byte("sha256:")); ok {
		_, data, _ := bytes.Cut(rest, []byte("\n"))
		return slices.Concat([]byte("sha256:"+sum(data)+"\n"), data)
	}
	n := bytes.LastIndex(text, []byte(",\n  \"checksum\": \"sha256:"))
	if n < 0 {
		ts.Fatalf("it has no checksum")
	}
	return slices.Concat(text[:n], []byte(",\n  \"checksum\": \"sha256:"+sum(text[:n])+"\"\n}"))
}

// What is only under way is believed by nobody, what stays is.
func TestCheckConfirms(t *testing.T) {
	defer func(was []time.Duration) { checkPauses = was }(checkPauses)
	checkPauses = []time.Duration{0, 0}
	looks := 0
	look := func(context.Context) (r session.Report, err error) {
		looks++
		r.Live = true
		r.Fault("a", "stays", "")
		if looks < 3 {
			r.Fault("b", "is gone in the end", "")
		}
		if looks > 1 {
			r.Fault("c", "came later", "")
		}
		return r, nil
	}
	r, err := confirmed(t.Context(), look)
	if err != nil || len(r.Findings) != 1 || r.Findings[0].Where != "a" || looks != 3 {
		t.Errorf("after %d looks: %+v, %v", looks, r.Findings, err)
	}
	looks = 0
	r, err = confirmed(t.Context(), func(context.Context) (r session.Report, err error) {
		looks++
		r.Live = true
		r.Note("a", "stays", "")
		return r, nil
	})
	if err != nil || len(r.Findings) != 1 || looks != 1 {
		t.Errorf("a note was looked at %d times: %+v, %v", looks, r.Findings, err)
	}
	looks = 0
	r, err = confirmed(t.Context(), func(context.Context) (r session.Report, err error) {
		looks++
		r.Fault("a", "stays", "")
		return r, nil
	})
	if err != nil || len(r.Findings) != 1 || looks != 1 {
		t.Errorf("without a server it was looked %d times: %+v, %v", looks, r.Findings, err)
	}
}
