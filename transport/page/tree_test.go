package page

import (
	"fmt"
	"strings"
	"testing"

	"deepwork/session/attempt"
	"deepwork/session/merge"
)

func (f *folder) String() string {
	var parts []string
	for _, sub := range f.Folders {
		parts = append(parts, fmt.Sprintf("%s(%s)", sub.Name, sub))
	}
	for _, file := range f.Files {
		parts = append(parts, file.Name)
	}
	return strings.Join(parts, " ")
}

func TestTree(t *testing.T) {
	v := review{Diffs: parseDiff("p", "diff --git a/a/b/c.go b/a/b/c.go\n--- a/a/b/c.go\n+++ b/a/b/c.go\n@@ -1 +1 @@\n-x\n+y\n")}
	v.Comments = []merge.Comment{{RepoName: "p", File: "a/b/c.go", Line: 1, Side: "new"}}
	v.grow(&attempt.FullAttemptReply{AttemptReply: attempt.AttemptReply{Repos: []attempt.AttemptRepo{{RepoName: "p", ChangedFiles: []string{"a/b/c.go", "a/b/d/e.go", "f", "g/h/i"}}}}}, 0)
	if got, want := v.Tree.String(), "a/b(d(e.go) c.go) g/h(i) f"; got != want {
		t.Errorf("the tree is %s, want %s", got, want)
	}
	if f := v.Tree.Folders[0].Files[0]; f.Comments != 1 || f.Link != "#file-0" || f.Added != 1 {
		t.Errorf("the file in the diff is %+v", f)
	}
	if f := v.Tree.Folders[0].Folders[0].Files[0]; f.Link != "?path=a%2Fb%2Fd%2Fe.go" {
		t.Errorf("the file that is left out is %+v", f)
	}
}

func TestPlaceComments(t *testing.T) {
	f := parseDiff("p", "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n")[0]
	f.RepoID = "r"
	f.place([]merge.Comment{{RepoID: "r", File: "f", Line: 2, Side: "old", Text: "a"}, {RepoID: "r", File: "f", Line: 2, Side: "new", Text: "b"}, {RepoID: "other", File: "f", Line: 1, Side: "new"}})
	for i, want := range []string{"", "", "a", "b"} { // the first is the hunk
		got := ""
		for _, c := range f.Lines[i].Comments {
			got += c.Text
		}
		if got != want {
			t.Errorf("line %d has the comments %q, want %q", i, got, want)
		}
	}
}
