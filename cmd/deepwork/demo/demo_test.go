package demo

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/session/show"
)

// A line of the story says what is done, and what must come of it; the first thing that does not stops the story.
func TestPlay(t *testing.T) {
	t.Setenv("DEEPWORK_STORE", "x")
	t.Setenv("GIT_DIR", "/nowhere")
	t.Setenv("COLUMNS", "3")
	t.Setenv("OTHER", "1")
	var out strings.Builder
	d := &Demo{Out: show.NewScreen(&out, func(string) string { return "" }), Dir: testkit.Dir(t), Self: "git"}
	testkit.Must(t, d.layOut(t.Context()))
	d.reply = map[string]any{"status": "next_step", "path": d.Dir + "/a"}
	for _, c := range []struct{ line, says, fails string }{
		{"A sentence.", "\nA sentence.\n", ""},
		{"  a command to copy", "a command to copy", ""},
		{"<- status: next", "<- status: next_step", ""},
		{"<- path: ", "<- path: …/a", ""},
		{"<- status: done", "", `status is "next_step", and doesn't begin with "done"`},
		{"<- other: x", "", `other is ""`},
		{"$ deepwork log --format=%s", "$ deepwork log --format=%s", ""},
		{"| Newsl", "   Newsletter", ""},
		{"| ^Excel", "", "no line matches ^Excel:\nNewsletter"},
		{`$ deepwork log "--format=%an of %s"`, "", ""},
		{"| Demo", "   Demo of Newsletter", ""},
		{"$ deepwork nothing", "", "nothing"},
		{"@write greeting.txt Hi.", "   (greeting.txt: Hi.)", ""},
		{"$ deepwork status --short", "", ""},
		{"| M", "    M greeting.txt", ""},
		{"@show jobs/newsletter/job.yml", indent + "name: newsletter", ""},
	} {
		out.Reset()
		err := d.play(t.Context(), c.line)
		testkit.True(t, (err == nil) == (c.fails == "") && (err == nil || strings.Contains(err.Error(), c.fails)),
			"%s: %v", c.line, err)
		testkit.Contains(t, out.String(), c.says, "%s", c.line)
	}
	env := d.environ()
	own := filepath.Join(d.Dir, "own")
	for entry, want := range map[string]bool{
		"DEEPWORK_STORE=x":       false,
		"GIT_DIR=/nowhere":       false,
		"COLUMNS=3":              false,
		"XDG_CONFIG_HOME=" + own: true,
		"GIT_CONFIG_NOSYSTEM=1":  true,
		"OTHER=1":                true,
	} {
		testkit.Equal(t, slices.Contains(env, entry), want, "%s", entry)
	}
	for _, name := range []string{"newsletter/.deepwork/config.yml", "own/deepwork/config.yml"} {
		testkit.True(t, strings.Contains(string(testkit.Get(os.ReadFile(filepath.Join(d.Dir, name))).Must(t)),
			map[bool]string{true: "git", false: d.project()}[strings.HasPrefix(name, "newsletter")]), "%s", name)
	}
	d.Dir = testkit.Dir(t) // and git is not a server
	testkit.Fails(t, d.Run(t.Context()), "connecting to a server")
}

// The reviewer of the story fails what its text is about, and passes the rest.
func TestReviewer(t *testing.T) {
	for told, want := range map[string]string{
		"It has Excel.":             "notes.md has CSV, but not Excel.",
		"Does it end with a tip?":   "Add a tip at the end.",
		"end with a tip? Tip: rest": "",
		"Anything":                  "",
	} {
		var out strings.Builder
		testkit.Works(t, Agents["reviewer"](t.Context(), strings.NewReader(told), &out))
		var verdict struct {
			Passed   bool
			Feedback string
		}
		testkit.Must(t, json.Unmarshal([]byte(out.String()), &verdict))
		testkit.True(t, verdict.Feedback == want && verdict.Passed == (want == ""), "%s: %+v", told, verdict)
	}
	testkit.FailsWith(t, Agents["reviewer"](t.Context(), broken{}, &strings.Builder{}), errBroken)
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// The coder changes the greeting where it works, and commits it.
func TestCoder(t *testing.T) {
	d := &Demo{Dir: testkit.Dir(t), Self: "git"}
	testkit.Must(t, d.layOut(t.Context()))
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(d.Dir, "own", "gitconfig"))
	t.Chdir(d.project())
	var out strings.Builder
	testkit.Works(t, Agents["coder"](t.Context(), nil, &out))
	testkit.Contains(t, out.String(), "friendlier")
	testkit.Equal(t, testkit.Get(d.run(t.Context(), "git", "show", "HEAD:greeting.txt")).Must(t),
		"Hello, and welcome!\n")
}
