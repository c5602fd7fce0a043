package page

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// short writes parts of a diff in a few words.
func short(all []fileDiff) string {
	var b strings.Builder
	for _, f := range all {
		fmt.Fprintf(&b, "%s +%d -%d", f.File, f.Added, f.Removed)
		for _, n := range f.Note {
			fmt.Fprintf(&b, " [%s]", n)
		}
		for _, l := range f.Lines {
			fmt.Fprintf(&b, " %s/%d/%d/%s", l.Kind, l.Old, l.New, l.Text)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestParseDiff(t *testing.T) {
	for name, c := range map[string]struct{ diff, want string }{
		"nothing":        {"", ""},
		"no heading":     {"warning: x\n+y\n", ""},
		"changed":        {"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ func\n a\n-b\n+c\n", "x +1 -1 hunk/0/0/@@ -3,2 +3,2 @@ func same/3/3/a del/4/0/b add/0/4/c\n"},
		"one line":       {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\n", "x +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b add/0/1/c\n"},
		"new":            {"diff --git a/x b/x\nnew file mode 100644\nindex 0..2\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+c\n", "x +1 -0 [new file mode 100644] hunk/0/0/@@ -0,0 +1 @@ add/0/1/c\n"},
		"deleted":        {"diff --git a/x b/x\ndeleted file mode 100644\nindex 2..0\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-c\n", "x +0 -1 [deleted file mode 100644] hunk/0/0/@@ -1 +0,0 @@ del/1/0/c\n"},
		"renamed":        {"diff --git a/x y b/z\nsimilarity index 100%\nrename from x y\nrename to z\n", "z +0 -0 [similarity index 100%] [rename from x y] [rename to z]\n"},
		"binary":         {"diff --git a/i.png b/i.png\nindex 1..2 100644\nBinary files a/i.png and b/i.png differ\n", "i.png +0 -0 [Binary files a/i.png and b/i.png differ]\n"},
		"a name with b/": {"diff --git a/x b/y.png b/x b/y.png\nindex 1..2 100644\nBinary files differ\n", "x b/y.png +0 -0 [Binary files differ]\n"},
		"mode":           {"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "x +0 -0 [old mode 100644] [new mode 100755]\n"},
		"quoted":         {"diff --git \"a/\\303\\244\\t\" \"b/\\303\\244\\t\"\n--- \"a/\\303\\244\\t\"\n+++ \"b/\\303\\244\\t\"\n@@ -1 +1 @@\n-b\n+c\n", "ä\t +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b add/0/1/c\n"},
		"no newline":     {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "x +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b note/0/0/\\ No newline at end of file add/0/1/c note/0/0/\\ No newline at end of file\n"},
		"like headings":  {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n diff --git a/evil b/evil\n--- a/old\n+++ b/new\n @@ -1 +1 @@\n", "x +1 -1 hunk/0/0/@@ -1,3 +1,3 @@ same/1/1/diff --git a/evil b/evil del/2/0/-- a/old add/0/2/++ b/new same/3/3/@@ -1 +1 @@\n"},
		"two files":      {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\ndiff --git a/y b/y\n--- a/y\n+++ b/y\n@@ -9 +9 @@\n-b\n+c\n", "x +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b add/0/1/c\ny +1 -1 hunk/0/0/@@ -9 +9 @@ del/9/0/b add/0/9/c\n"},
		"cut off":        {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1", "x +0 -0 hunk/0/0/@@ -1 +1\n"},
	} {
		if got := short(parseDiff("", c.diff)); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// What git prints of a repository with odd names is read.
func TestParseDiffOfGit(t *testing.T) {
	root := testkit.Dir(t)
	testkit.Git(t, root, "init", "-q")
	names := []string{"plain", "with space", "ümlaut", `quote"d`, "x b/y b/z", "-dash", "@@ -1 +1 @@"}
	for _, name := range names {
		testkit.Write(t, filepath.Join(root, name), "one\ntwo\n")
	}
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-q", "-m", "first")
	for _, name := range names {
		testkit.Write(t, filepath.Join(root, name), "one\n++ b/evil\n")
	}
	seen := make(map[string]bool)
	for _, f := range parseDiff("", testkit.Git(t, root, "diff")+"\n") {
		seen[f.File] = true
		if f.Added != 1 || f.Removed != 1 {
			t.Errorf("%q: +%d -%d", f.File, f.Added, f.Removed)
		}
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("%q is not among %v", name, seen)
		}
		testkit.Must(t, os.WriteFile(filepath.Join(root, name), []byte{0, 1, 2}, 0o644))
	}
	binary := parseDiff("", testkit.Git(t, root, "diff")+"\n")
	for i, name := range names {
		found := false
		for _, f := range binary {
			found = found || f.File == name && len(f.Note) > 0 && len(f.Lines) == 0
		}
		if !found {
			t.Errorf("%d: %q is not among the binary files %q", i, name, short(binary))
		}
	}
}

// No diff is lost: each line of a hunk is shown once, in both views.
func FuzzParseDiff(f *testing.F) {
	f.Add("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\n")
	f.Add("diff --git \"a/\\303\" b/\n@@ \n@@ -x +\n@@ -1 - + @@\n+\n-\n\\\n")
	f.Add("diff --git \n+++ \"\n@@  \n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, file := range parseDiff("r", text) {
			added, removed, pairs := 0, 0, 0
			for _, l := range file.Lines {
				switch l.Kind {
				case "add":
					added++
				case "del":
					removed++
				}
				if !strings.Contains(text, l.Text) {
					t.Errorf("%q is not in the diff", l.Text)
				}
			}
			if added != file.Added || removed != file.Removed {
				t.Errorf("+%d -%d, counted as +%d -%d", added, removed, file.Added, file.Removed)
			}
			for _, p := range file.Pairs() {
				if p[0].Kind == p[1].Kind && p[0].Kind != "" {
					pairs++
					continue
				}
				for _, side := range p {
					if side.Kind != "" {
						pairs++
					}
				}
			}
			if pairs != len(file.Lines) {
				t.Errorf("%d of %d lines are side by side", pairs, len(file.Lines))
			}
		}
	})
}
