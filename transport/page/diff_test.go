package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"deepwork/actor/testkit"
	"deepwork/catalog/job"
	"deepwork/session"
	"deepwork/session/attempt"
	"deepwork/session/board"
	"deepwork/session/judging"
	"deepwork/session/machine"
	"deepwork/session/merge"
	"deepwork/session/run"
	"deepwork/session/store"
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
		"nothing":    {"", ""},
		"no heading": {"warning: x\n+y\n", ""},
		"changed": {"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@ func\n " +
			"a\n-b\n+c\n", "x +1 -1 hunk/0/0/@@ -3,2 +3,2 @@ func same/3/3/a del/4/0/b add/0/4/c\n"},
		"new": {"diff --git a/x b/x\nnew file mode 100644\nindex 0..2\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 " +
			"@@\n+c\n", "x +1 -0 [new file mode 100644] hunk/0/0/@@ -0,0 +1 @@ add/0/1/c\n"},
		"deleted": {"diff --git a/x b/x\ndeleted file mode 100644\nindex 2..0\n--- a/x\n+++ /dev/null\n@@ -1 " +
			"+0,0 @@\n-c\n", "x +0 -1 [deleted file mode 100644] hunk/0/0/@@ -1 +0,0 @@ del/1/0/c\n"},
		"renamed": {"diff --git a/x y b/z\nsimilarity index 100%\nrename from x y\nrename to z\n",
			"z +0 -0 [similarity index 100%] [rename from x y] [rename to z]\n"},
		"not seen": {"diff --git a/x b/x\n@@ -0,0 +1 @@\n+true \x1b]0;touch PWNED\x07\u202e\r\n",
			`x +1 -0 hunk/0/0/@@ -0,0 +1 @@ add/0/1/true \u001b]0;touch PWNED\u0007\u202e` + "\n"},
		"binary": {"diff --git a/i.png b/i.png\nindex 1..2 100644\nBinary files a/i.png and b/i.png differ\n",
			"i.png +0 -0 [Binary files a/i.png and b/i.png differ]\n"},
		"a name with b/": {"diff --git a/x b/y.png b/x b/y.png\nindex 1..2 100644\nBinary files differ\n",
			"x b/y.png +0 -0 [Binary files differ]\n"},
		"mode": {"diff --git a/x b/x\nold mode 100644\nnew mode 100755\n",
			"x +0 -0 [old mode 100644] [new mode 100755]\n"},
		"quoted": {"diff --git \"a/\\303\\244\\t\" \"b/\\303\\244\\t\"\n--- \"a/\\303\\244\\t\"\n+++ " +
			"\"b/\\303\\244\\t\"\n@@ -1 +1 @@\n-b\n+c\n", "ä\t +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b add/0/1/c\n"},
		"no newline": {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n\\ No newline at end of " +
			"file\n+c\n\\ No newline at end of file\n",
			"x +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b note/0/0/\\ No newline at end of file add/0/1/c note/0/0/\\ No " +
				"newline at end of file\n"},
		"like headings": {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n diff --git a/evil b/evil\n--- " +
			"a/old\n+++ b/new\n @@ -1 +1 @@\n",
			"x +1 -1 hunk/0/0/@@ -1,3 +1,3 @@ same/1/1/diff --git a/evil b/evil del/2/0/-- a/old add/0/2/++ b/new " +
				"same/3/3/@@ -1 +1 @@\n"},
		"two files": {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\ndiff --git a/y b/y\n--- a/y\n+++ " +
			"b/y\n@@ -9 +9 @@\n-b\n+c\n",
			"x +1 -1 hunk/0/0/@@ -1 +1 @@ del/1/0/b add/0/1/c\ny +1 -1 hunk/0/0/@@ -9 +9 @@ del/9/0/b add/0/9/c\n"},
		"cut off": {"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1", "x +0 -0 hunk/0/0/@@ -1 +1\n"},
	} {
		testkit.Equal(t, short(parseDiff(attempt.RepoDiff{Diff: c.diff})), c.want, "%s", name)
	}
}

// What git prints of a repository with odd names is read.
func TestParseDiffOfGit(t *testing.T) {
	root := testkit.Dir(t)
	names := []string{"plain", "with space", "ümlaut", `quote"d`, "x b/y b/z", "-dash", "@@ -1 +1 @@"}
	write := func(text string) {
		for _, name := range names {
			testkit.Write(t, filepath.Join(root, name), text)
		}
	}
	write("one\ntwo\n")
	testkit.Git(t, root, "init", "-q")
	testkit.Git(t, root, "add", "-A")
	testkit.Git(t, root, "commit", "-q", "-m", "first")

	for text, want := range map[string]string{
		"one\n++ b/evil\n": "+1 -1, 0 notes, 4 lines",
		"\x00\x01\x02":     "+0 -0, 1 notes, 0 lines",
	} {
		write(text)
		seen := map[string]string{}
		for _, f := range merge.ParseDiff(testkit.Git(t, root, "diff") + "\n") {
			seen[f.File] = fmt.Sprintf("+%d -%d, %d notes, %d lines", f.Added, f.Removed, len(f.Note), len(f.Lines))
		}
		for _, name := range names {
			testkit.Equal(t, seen[name], want, "%s", name)
		}
	}
}

// No diff is lost: each line of a hunk is shown once, in both views.
func FuzzParseDiff(f *testing.F) {
	f.Add("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-b\n+c\n")
	f.Add("diff --git \"a/\\303\" b/\n@@ \n@@ -x +\n@@ -1 - + @@\n+\n-\n\\\n")
	f.Add("diff --git \n+++ \"\n@@  \n")
	f.Add("diff --git \"a/\\303\" b/\n@@ \x00\x00\x01\x00") // which is shown as text
	f.Fuzz(func(t *testing.T, text string) {
		unseen := !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
			return r != '\n' && !unicode.IsPrint(r)
		})
		for _, file := range parseDiff(attempt.RepoDiff{Diff: text}) {
			kinds, pairs := map[string]int{}, 0
			for _, l := range file.Lines {
				kinds[l.Kind]++
				testkit.True(t, unseen || strings.Contains(text, l.Text), "%q is not in the diff %q", l.Text, text)
			}
			testkit.Equal(t, kinds["add"], file.Added)
			testkit.Equal(t, kinds["del"], file.Removed)

			for _, p := range file.Pairs() {
				if p[0].Kind != "" {
					pairs++
				}
				if p[1].Kind != "" && p[1].Kind != p[0].Kind {
					pairs++
				}
			}
			testkit.Equal(t, pairs, len(file.Lines), "lines side by side")
		}
	})
}

// What an action says is shown to its caller alone, and no link makes a page say anything else.
func TestNotices(t *testing.T) {
	s, ann := &Site{Options: Options{Key: []byte("key")}}, session.Caller{Identity: "ann"}
	next := testkit.Get(url.Parse(s.withNotice(ann, "/board?project=p", "Done & merged."))).Must(t)
	given := next.Query().Get("notice")
	testkit.Equal(t, s.notice(ann, next.Query())+" at "+next.Query().Get("project"), "Done & merged. at p")
	for _, forged := range []string{"", "x", given[:2*signature], given + "x", "x" + given[1:]} {
		testkit.Equal(t, s.notice(ann, url.Values{"notice": {forged}}), "", "%q shows", forged)
	}
	testkit.Equal(t, s.notice(session.Caller{Identity: "bob"}, next.Query()), "", "another caller is shown")
	testkit.Equal(t, s.withNotice(ann, "/board", ""), "/board", "nothing to say is said")
}

// No address leads away from the pages.
func TestHere(t *testing.T) {
	for address, want := range map[string]string{
		"/board?status=done":    "/board?status=done",
		"/":                     "/",
		"":                      "else",
		"board":                 "else",
		"//evil.example":        "else",
		"https://evil.example/": "else",
		`/\evil.example`:        "else",
		"javascript:alert(1)":   "else",
		"///evil.example":       "else",
		"/%2f/evil.example":     "else",
		"\t//evil.example":      "else",
	} {
		testkit.Equal(t, localURL(address, "else"), want, "%q", address)
	}

	p := &boardPage{Filter: boardFilter{Labels: "a b"}} // a filter gets another label once
	testkit.Equal(t, p.Labelled("c")+" "+p.Labelled("b"), "/board?labels=a+b+c /board?labels=a+b")
}

// A run of many steps whose agents say much, with many tries, fits on a page, beside a diff.
func TestRunFits(t *testing.T) {
	const most = 100<<10 - maxDiff - 8000 // the rest of the page
	views := testkit.Get(parseViews()).Must(t)
	long := strings.Repeat("<b> & ", 2000)
	of := func(id string, state board.State, tries int) *run.Step {
		v := &run.Step{
			ID:        id,
			Name:      strings.Repeat("A name ", 5),
			SessionID: "0a1b2c3d",
			State:     state,
			Last:      long,
			Took:      3 * time.Minute,
		}
		for range tries {
			v.Agents = append(v.Agents, board.RunStep{
				ExecutionID: uuid.NewString(),
				StepID:      id,
				Executor:    "WRITER",
				State:       "failed",
				Why:         long,
				EndedAt:     new("2026-01-01T00:00:00Z"),
			})
		}
		return v
	}
	for _, finished := range []int{0, 50, 250} {
		v := &runView{View: &run.View{
			RunReply: &board.RunReply{RunID: uuid.NewString(), State: "running", SessionID: new("0a1b2c3d")},
			Live:     true,
		}}
		for i := range 250 {
			step := of(fmt.Sprint("step", i), board.NotBegun, 0)
			if i < finished {
				step = of(step.ID, board.Completed, 30)
			} else if i == finished {
				step = of(step.ID, "running", 30)
			}
			v.Tree.Entries = append(v.Tree.Entries, []*run.Step{step})
		}
		v.fit("")
		p := &workPage{FullAttemptReply: &attempt.FullAttemptReply{}, Task: &board.TaskReply{}, Steps: v, Run: v}
		var b bytes.Buffer
		testkit.Must(t, views.templates["work"].Execute(&b, frame{Data: p, Caller: session.LocalCaller("page")}))
		shown := len(v.Tree.Entries)
		testkit.True(t, b.Len() <= most, "with %d finished, the page has %d bytes, more than %d", finished,
			b.Len(), most)
		testkit.True(t, shown+v.Before+v.After == 250 && shown <= maxSteps,
			"with %d finished, %d are shown, %d and %d left out", finished, shown, v.Before, v.After)
		testkit.True(t, finished >= 250 || strings.Contains(b.String(), "running</span>"),
			"with %d finished, the one that runs is left out", finished)
	}
}

// The page of a run over 1,000 items shows some of them, and those that the URL asks for.
func TestItemsFit(t *testing.T) {
	views := testkit.Get(parseViews()).Must(t)
	state := &machine.State{SessionID: "0a1b2c3d"}
	list := &run.Step{ID: "port", SessionID: "0a1b2c3d", Name: "For each of todo", List: &run.List{AtOnce: 4},
		Nested: make([]run.Tree, 1)}
	for i := range 1000 {
		value := fmt.Sprint("<b>", i, strings.Repeat("long", 100))
		item := &run.Item{Number: i + 1, Value: value, State: board.Completed}
		if i%300 == 0 {
			item.State, item.Said = board.Failed, strings.Repeat("Why. ", 100)
		}
		for _, id := range []string{"port", "look", "check"} {
			item.Steps = append(item.Steps, &run.Step{ID: job.Item(id, i), SessionID: "0a1b2c3d", State: item.State,
				Session: state, Progress: new(machine.StepProgress), Agents: []board.RunStep{{ExecutionID: "x"}}})
		}
		list.List.Items = append(list.List.Items, item)
		list.Nested[0].Entries = append(list.Nested[0].Entries, item.Steps)
	}
	v := &runView{View: &run.View{
		RunReply: &board.RunReply{RunID: "r", State: board.Running, SessionID: new("0a1b2c3d")},
		Live:     true,
		Tree:     run.Tree{SessionID: "0a1b2c3d", Entries: [][]*run.Step{{list}}},
	}}
	v.fit("")
	p := &workPage{FullAttemptReply: &attempt.FullAttemptReply{}, At: "/attempts/a", Part: "?session=0a1b2c3d",
		Task: &board.TaskReply{}, Steps: v, Run: v}
	for _, c := range []struct {
		query url.Values
		rows  int
		want  string
	}{
		{nil, 50, "<summary>996 completed</summary>"},
		{url.Values{"items": {"failed"}}, 4, `<option value="failed" selected>failed</option>`},
		{url.Values{"q": {"<b>77"}}, 11, `value="&lt;b&gt;77"`},
		{url.Values{"q": {"no such item"}}, 0, "No item is like that."},
		{url.Values{"items": {"completed"}}, 50, "These are 50 of 996"},
		{url.Values{"session": {"0a1b2c3d"}}, 50, `<input type="hidden" name="session" value="0a1b2c3d">`},
		{url.Values{"items": {"failed"}}, 4, `<a href="/attempts/a?session=0a1b2c3d#step-0a1b2c3d-port">All items</a>`},
	} {
		var b bytes.Buffer
		f := frame{Data: p, Caller: session.LocalCaller("page"), Query: c.query}
		testkit.Must(t, views.templates["work"].Execute(&b, f))
		testkit.True(t, b.Len() < 80<<10, "%v: the page has %d bytes", c.query, b.Len())
		testkit.Equal(t, strings.Count(b.String(), "row item"), c.rows, "%v", c.query)
		testkit.ContainsAll(t, b.String(), []string{c.want, "1000 items, 4 at once: 996 completed, 4 failed"},
			"%v", c.query)
	}
}

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
	files := parseStat(attempt.RepoDiff{RepoName: "p", Diff: "1\t1\ta/b/c.go\x002\t0\ta/b/z.go\x00"})
	v := review{Diffs: files[:1]}
	v.Comments = []merge.Comment{{RepoName: "p", File: "a/b/c.go", Line: 1, Side: "new"}}
	v.grow(&attempt.FullAttemptReply{AttemptReply: attempt.AttemptReply{Repos: []attempt.AttemptRepo{{
		RepoName:     "p",
		ChangedFiles: []string{"a/b/c.go", "a/b/d/e.go", "f", "g/h/i"},
	}}}}, files, 0)
	testkit.Equal(t, v.Tree.String(), "a/b(d(e.go) c.go z.go) g/h(i) f", "the tree")

	far := v.Tree.Folders[0].Files[1]
	testkit.Equal(t, fmt.Sprint(far.Link, far.Added, far.Counted), "?path=a%2Fb%2Fz.go2 true",
		"a file without a section")
	in, out := v.Tree.Folders[0].Files[0], v.Tree.Folders[0].Folders[0].Files[0]
	testkit.Equal(t, in.Comments, 1, "the file in the diff is %+v", in)
	testkit.Equal(t, in.Link, "#file-0", "the file in the diff is %+v", in)
	testkit.Equal(t, in.Added, 1, "the file in the diff is %+v", in)
	testkit.Equal(t, out.Link, "?path=a%2Fb%2Fd%2Fe.go", "the file that is left out")
}

// Small files are first, and open; large ones, and those for which there is no room, are folded, and all are counted.
func TestLargeFilesAreFolded(t *testing.T) {
	text := fmt.Sprintf("%d\t0\tlarge.txt\x003\t1\tb.txt\x00-\t-\tp.png\x0010\t2\t\x00old name\x00new\x00",
		maxUnfolded+1)
	for i := range 300 {
		text += fmt.Sprintf("9\t1\tmany/%d\x00", i)
	}
	files := parseStat(attempt.RepoDiff{RepoName: "p", Diff: text + "5\tcut o"})
	stat := statOf(files, false)
	testkit.Equal(t, fmt.Sprintf("%d files +%d -%d", stat.Files, stat.Added, stat.Removed),
		fmt.Sprintf("304 files +%d -303", maxUnfolded+1+3+10+2700))

	var v review
	v.fold(files)
	testkit.Equal(t, len(v.Diffs), maxSections)
	testkit.True(t, v.Cut, "nothing is left out")
	first, open := "", 0
	for _, f := range v.Diffs {
		if !f.Folded {
			open++
			testkit.True(t, f.File != "large.txt", "the large file is open")
		}
	}
	for _, f := range v.Diffs[:4] {
		first += f.Old + ">" + f.File + " "
	}
	testkit.Equal(t, first, ">b.txt >p.png old name>new >many/0 ")
	testkit.True(t, open > 10 && open < 40, "%d files are open", open)
	testkit.Equal(t, v.Diffs[open].File, "large.txt", "the first that is folded")

	one := review{Path: "large.txt"}
	one.fold(files)
	testkit.True(t, len(one.Diffs) == 1 && !one.Diffs[0].Folded, "on its own page: %+v", one.Diffs)
}

func TestPlaceComments(t *testing.T) {
	f := parseDiff(attempt.RepoDiff{RepoID: "r", RepoName: "p",
		Diff: "diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n"})[0]
	f.place([]merge.Comment{{RepoID: "r", File: "f", Line: 2, Side: "old", Text: "a"},
		{RepoID: "r", File: "f", Line: 2, Side: "new", Text: "b"}, {RepoID: "other", File: "f", Line: 1, Side: "new"}})
	got := ""
	for _, l := range f.Lines { // the first is the hunk
		for _, c := range l.Comments {
			got += c.Text
		}
		got += ";"
	}
	testkit.Equal(t, got, ";;a;b;")
}

// Open pages are told of the first change at once, and of those that follow together, later the more time pages take.
func TestPagesAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(nil)
		change := func() { f.batch([]store.Change{{Kind: store.TaskChanged, ID: "a"}}, false) }
		_, more := f.changed(nil)
		change()
		<-more
		for _, c := range []struct{ work, pause time.Duration }{{0, minPause}, {time.Millisecond, minPause},
			{time.Hour, maxPause}} {
			f.worked(c.work)
			_, more = f.changed(nil)
			began := time.Now()
			change()
			change()
			<-more
			testkit.Equal(t, time.Since(began), c.pause, "after %v of work they are told after", c.work)
		}
	})
}

// What was counted of an attempt is current until that attempt changes, and is counted again then.
func TestCountsOfChanges(t *testing.T) {
	f := newFeed(nil)
	c := newChanges(f)
	change := func(id string) { f.batch([]store.Change{{Kind: store.AttemptChanged, ID: id}}, false) }

	look := func(want bool) {
		t.Helper()
		stat, current := c.stat("a")
		testkit.Equal(t, current, want, "current is %t, wanted %v", current, c.wanted)
		testkit.Equal(t, c.wanted["a"], !want, "current is %t, wanted %v", current, c.wanted)
		testkit.Equal(t, (stat != nil), (len(c.known) > 0), "current is %t, wanted %v", current, c.wanted)
		clear(c.wanted)
	}
	look(false)
	change("a")
	c.known["a"] = counted{f.position(), &diffstat{Files: 1}}
	look(true)
	change("b")
	look(true)
	change("a")
	look(false)
}

// The feed keeps a bounded number of topics, and forgets none of the changes.
func TestFeedIsBounded(t *testing.T) {
	f := newFeed(nil)
	at := f.position()
	for i := range maxTopics + 10 {
		f.batch([]store.Change{{Kind: "task", ID: fmt.Sprint(i)}}, false)
	}
	testkit.True(t, len(f.last) <= maxTopics+10, "%d topics", len(f.last))

	last, _ := f.changed([]string{"task:0"})
	testkit.True(t, last > at, "a change was forgotten")
	_, all := f.since(at, "task")
	testkit.True(t, all, "the ids that have changed are not all there, and it does not say so")
}

// A browser that leaves while changes are read is no reason to make every page again.
func TestGivenUpRequestsAreNoNews(t *testing.T) {
	f := newFeed(away{})
	at := f.position()
	gone, leave := context.WithCancel(t.Context())
	leave()
	testkit.True(t, f.catchUp(gone) != nil && f.position() == at, "batch %d, want %d", f.position(), at)
	testkit.True(t, f.catchUp(t.Context()) != nil && f.position() != at, "no news although the changes cannot be read")
}

// away is a feed of a store that does not answer.
type away struct{ store.Changes }

func (away) Since(context.Context, string) (store.News, error) {
	return store.News{}, errors.New("away")
}

func init() { maxColoring = time.Minute }

// What highlight returns has the text, line by line, and no tag but its own, whatever the language.
func TestHighlight(t *testing.T) {
	testkit.Equal(t, string(highlight("a/x.go", []byte("if x {\n\treturn \"<b>\" // no\n}"))),
		`<span class="hl-k">if</span> x {`+"\n"+
			`	<span class="hl-k">return</span> <span class="hl-s">&#34;&lt;b&gt;&#34;</span> <span `+
			`class="hl-c">// no</span>`+"\n}", "Go")

	tags := regexp.MustCompile(`<span class="hl-[a-z]">|</span>`)
	hostile := "<script>alert('x')</script>\r\n/* \"a\nb <img src=x onerror=y> */ ${x} <!-- \n --> " +
		"`\n#!%[](javascript:x)\x00\u202e{\"a\": 1.5, 'b'\nFROM x\nkey = \"v\"\n<?php ?>\n+last"
	files := testkit.Get(fs.Glob(lexerFiles, "lexers/*.xml")).Must(t)
	for _, file := range files {
		lexer := testkit.Get(lexers()).Must(t).Get(strings.NewReplacer("cpp", "c++", "csharp", "c#", "docker",
			"dockerfile").Replace(strings.TrimSuffix(path.Base(file), ".xml")))
		name := strings.NewReplacer("*", "x").Replace(lexer.Config().Filenames[0])
		got := string(highlight(name, []byte(hostile)))
		testkit.True(t, strings.Contains(got, "<span"), "%s has no colors", name)
		testkit.Equal(t, strings.ReplaceAll(html.UnescapeString(tags.ReplaceAllString(got, "")), "\x00", "\ufffd"),
			strings.ReplaceAll(hostile, "\x00", "\ufffd"), "%s: the text", name)
		for line := range strings.SplitSeq(got, "\n") {
			testkit.True(t, !strings.ContainsAny(tags.ReplaceAllString(line, ""), "<>") &&
				strings.Count(line, "<span") == strings.Count(line, "</span>"), "%s: the line %q", name, line)
		}
	}

	long := strings.Repeat("<", maxColored+1)
	testkit.Equal(t, string(highlight("x.go", []byte(long))), html.EscapeString(long), "a long text")
}

func TestMarkdownRunsAndLoadsNothingFromElsewhere(t *testing.T) {
	for in, want := range map[string]string{
		"a *b* `c`":   "<p>a <em>b</em> <code>c</code></p>\n",
		"# A b":       `<h1 id="h-a-b">A b</h1>` + "\n",
		"[a](b.md#c)": `<p><a href="b.md#h-c">a</a></p>` + "\n",
		"<https://example.com>": `<p><a href="https://example.com" rel="noopener ` +
			`noreferrer">https://example.com</a></p>` + "\n",
		"[*a*](javascript:alert(1)) b":          "<p><em>a</em> b</p>\n",
		"[a](javascript&colon;alert(1)) b":      "<p>a b</p>\n",
		"[a](javascript&#58;alert(1)) b":        "<p>a b</p>\n",
		"[a](javascript&amp;colon;alert(1)) b":  "<p>a b</p>\n",
		"[a](jav&Tab;ascript&colon;alert(1)) b": "<p>a b</p>\n",
		"[a](//example.com)":                    "<p>a</p>\n",
		"[a](\\\\example.com)":                  `<p><a href="%5Cexample.com">a</a></p>` + "\n",
		"<javascript:alert(1)>":                 "<p>javascript:alert(1)</p>\n",
		"![a](https://example.com/x.png)":       "<p>a</p>\n",
		"![a](data:image/png;base64,AAAA)":      "<p>a</p>\n",
		"![a](x.png) ![b](/events?at=0&on=x)":   "<p>a b</p>\n",
		"<img src=x onerror=alert(1)> <b>b</b>": "<p>&lt;img src=x onerror=alert(1)&gt; &lt;b&gt;b&lt;/b&gt;</p>\n",
		"<script>alert(1)</script>": `<pre ` +
			`tabindex="0"><code>&lt;script&gt;alert(1)&lt;/script&gt;</code></pre>` + "\n",
		"    <pre>":                         `<pre tabindex="0"><code>&lt;pre&gt;` + "\n</code></pre>\n",
		"[![a](//x/y.png)](javascript:b) c": "<p>a c</p>\n",
		"<!-- a\n-->":                       `<pre tabindex="0"><code>&lt;!-- a` + "\n--&gt;</code></pre>\n",
		"[a][b]\n\n[b]: vbscript:x":         "<p>a</p>\n",
		"[a](https://example.com \"<b> ' " +
			"\\\"\")": `<p><a href="https://example.com" title="&lt;b&gt; ' &quot;" rel="noopener ` +
			`noreferrer">a</a></p>` + "\n",
	} {
		testkit.Equal(t, string(markdown([]byte(in))), want, "%q", in)
	}
}

// A bar begins and ends where its agent did, an agent at work ends now, and what a step waited for is a bar, too.
func TestTimeline(t *testing.T) {
	at := func(minute int) *string {
		return new(time.Date(2026, 1, 1, 10, minute, 0, 0, time.UTC).Format(time.RFC3339Nano))
	}
	now, _ := time.Parse(time.RFC3339Nano, *at(20))
	plan := &run.Step{ID: "plan", SessionID: "s", Name: "Plan it", State: board.Completed, Took: 7 * time.Minute,
		USD: new(.42), Agents: []board.RunStep{
			{State: board.Completed, StartedAt: at(10), EndedAt: at(12)},
			{State: board.Failed, StartedAt: at(0), EndedAt: at(5), LimitedUntil: at(15)},
		}}
	write := &run.Step{
		ID:        "write",
		SessionID: "s",
		State:     board.Running,
		Agents:    []board.RunStep{{State: board.Running, StartedAt: at(12)}},
	}
	then := func(minute int) time.Time { return testkit.Get(time.Parse(time.RFC3339Nano, *at(minute))).Must(t) }
	asked := func(from int, to *time.Time) *judging.Submission {
		return &judging.Submission{Turns: []judging.Turn{{With: judging.ByPerson, At: then(from), EndedAt: to}}}
	}
	sign := &run.Step{
		ID:        "sign",
		SessionID: "s",
		State:     board.WaitingForYou,
		Agents: []board.RunStep{
			{State: board.Completed, StartedAt: at(13), EndedAt: at(16)},
			{State: board.Completed, StartedAt: at(10), EndedAt: at(12)},
			{State: board.Failed, StartedAt: at(8), EndedAt: at(9)},
		},
		Session:  &machine.State{},
		Progress: &machine.StepProgress{Submissions: []*judging.Submission{asked(15, new(then(17))), asked(18, nil)}},
	}
	last := &run.Step{ID: "last", SessionID: "s", State: board.NotBegun}
	v := &runView{View: &run.View{
		RunReply: &board.RunReply{},
		Live:     true,
		Tree:     run.Tree{SessionID: "s", Entries: [][]*run.Step{{plan}, {write, sign}, {last}}},
	}}
	line := v.timelineAt(now)
	testkit.Same(t, line.Lanes[0].Bars, []bar{
		{0, 25, "failed", "failed, 5 min"}, {25, 25, "limit", "waited for a limit, 5 min"},
		{50, 10, "completed", "completed, 2 min"},
	})
	testkit.Same(t, line.Lanes[1].Bars, []bar{{60, 40, "running", "running, 8 min"}})
	testkit.Same(t, line.Lanes[2].Bars, []bar{{40, 5, "failed", "failed, 1 min"},
		{50, 10, "unfinished", "ended, step not finished, 2 min"}, {65, 15, "completed", "completed, 3 min"},
		{75, 10, "person", "waited for a person, 2 min"}, {90, 10, "person", "waited for a person, 2 min"}})
	testkit.Equal(t, line.Lanes[3].Summary(), "not begun")
	testkit.Same(t, line.Ticks, []string{"0s", "5m", "10m", "15m", "20m"})

	// The labels of the axis are short, and none is there twice, however long a run is.
	for length := time.Duration(0); length < 1000*24*time.Hour; length += length/7 + time.Second {
		scaled := scale(length)
		testkit.True(t, scaled >= length && scaled > 0, "%v becomes %v", length, scaled)
		for i := range ticks + 1 {
			label := zeros.Replace((scaled * time.Duration(i) / ticks).String())
			testkit.True(t, len(label) <= 6, "%v: %q", length, label)
		}
	}

	// The items of a list share a lane.
	list := &run.Step{ID: "each", State: board.Running, List: &run.List{AtOnce: 2, Items: []*run.Item{
		{State: board.Completed}, {State: board.Running}}},
		Nested: []run.Tree{{Entries: [][]*run.Step{{plan}, {write}}}}}
	v.Tree.Entries = [][]*run.Step{{list}}
	testkit.Same(t, v.timelineAt(now).Lanes[0].Bars,
		[]bar{{0, 100, "running", "2 items, 2 at once: 1 completed, 1 running, 20 min"}})
	v.Tree.Entries = [][]*run.Step{{plan}, {write, sign}, {last}}

	views := testkit.Get(parseViews()).Must(t)
	var page bytes.Buffer
	testkit.Must(t, views.templates["work"].ExecuteTemplate(&page, "lanes", v))
	testkit.ContainsAll(t, page.String(), []string{` fill="url(#hatch)" `, `7 min · $0.42</span>`,
		"</svg> not finished</li>"}, "the page")
}
