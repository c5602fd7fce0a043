package worktree

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const journaledAttempt = "3b241101-e2bb-4255-8caf-4136c566a962"

func journalText(tree string) string {
	return `{"version":2,"attempt":"` + journaledAttempt + `","branch":"deepwork/a-0001","phase":"made","trees":[` + tree + `],"board":"b"}`
}

const wholeTree = `{"repo_id":"r","name":"web","repo":"/p/web","target_branch":"main","git_dir":"/p/web/.git","branch":"b","base":"","begun":true}`

// A journal that is damaged is told, and nothing is done by it.
func TestDamagedJournals(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the paths in the texts are no absolute ones there")
	}
	if _, err := parseJournal("/p/w", journaledAttempt, []byte(journalText(wholeTree))); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		``:                               "is damaged",
		`null`:                           "another version (0)",
		journalText(`null`):              "worktree 0 is null",
		journalText(wholeTree + `,null`): "worktree 1 is null",
		journalText(`{}`):                "must be an absolute path",
		journalText(strings.Replace(wholeTree, "/p/web/.git", "../x", 1)):        "must be an absolute path",
		journalText(strings.Replace(wholeTree, "/p/web/.git", `/p/\u0000`, 1)):   "must be an absolute path",
		journalText(strings.Replace(wholeTree, `"web"`, `"../web"`, 1)):          "cannot be the name",
		journalText(strings.ReplaceAll(wholeTree, "web\"", ".journal/..\"")):     "cannot be the name",
		strings.Replace(journalText(wholeTree), `"made"`, `"maid"`, 1):           `no phase "maid"`,
		strings.Replace(journalText(wholeTree), `"version":2`, `"version":1`, 1): "another version (1)",
		strings.Replace(journalText(wholeTree), `3b24`, `3b25`, 1):               "or attempt",
	} {
		if j, err := parseJournal("/p/w", journaledAttempt, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", text, j, err, want)
		}
	}
	// Recovery passes it by, and says which file it is.
	k, _ := newKeeper(t)
	path := k.journalPath(journaledAttempt)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(journalText(`null`)), 0o600))
	did, err := k.Recover(t.Context(), func(string) bool { return false })
	if err == nil || !strings.Contains(err.Error(), path) || len(did) > 0 {
		t.Errorf("%v, %v", did, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// Whatever a journal's file holds, what is taken from it is whole, and is written as
// it was read.
func FuzzJournal(f *testing.F) {
	for _, tree := range []string{wholeTree, wholeTree + "," + wholeTree, `null`, `{}`, `{"name":"x","git_dir":"/","begun":true}`, `[]`} {
		f.Add([]byte(journalText(tree)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := parseJournal("/p/w", journaledAttempt, data)
		if err != nil {
			return
		}
		for _, e := range j.Trees {
			if e == nil || !filepath.IsAbs(e.Path) {
				t.Fatalf("%+v", e)
			}
		}
		text, err := json.Marshal(j)
		if err != nil {
			t.Skip() // a year that JSON cannot write is not ours
		}
		again, err := parseJournal("/p/w", journaledAttempt, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if b, err := json.Marshal(again); err != nil || string(b) != string(text) {
			t.Errorf("%s became %s", text, b)
		}
	})
}
