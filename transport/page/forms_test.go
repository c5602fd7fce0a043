package page_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

const askJob = `name: ask
version: 1.0.0
summary: Ask people
common_job_info_provided_to_all_steps_at_runtime: Be polite.
workflows:
  - {name: short, summary: Ask briefly, steps: [talk]}
  - name: them
    summary: Ask them
    steps: [talk]
    inputs:
      - {name: topic, description: What <about>}
      - {name: places, description: Where to ask, type: files, required: false}
      - {name: paper, description: The paper, type: file, required: false}
      - {name: tone, description: How, default: plain & simple}
steps:
  - {id: talk, name: Talk, description: Talk, instructions_file: talk.md, outputs: {}, reviews: []}
`

// Forms that use a workflow have a field for each of its inputs, and what is in them reaches the run or the
// task; they need no script.
func TestFormsHaveInputs(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/ask/job.yml": askJob, ".deepwork/jobs/ask/talk.md": "Talk."})
	s := serve(t, root, web.Options{})
	call := pagetest.Connect(t, s.url, "")
	b := s.browser(t)
	has := func(path string, want ...string) { b.do("GET", path, nil).is(http.StatusOK, want...) }
	has("/jobs/ask", "topic (string, required)", "What &lt;about&gt;", "tone (string, default: plain &amp; simple)", `href="/board?workflow=ask/them#new"`, `href="?run=them#run"`)
	has("/jobs/ask?run=them", `value="ask/them"`, `name="input.topic" rows="2" required>`, "topic (required): What &lt;about&gt;", `name="paths.places" rows="2">`, "one path per line",
		`<input id="input.paper" name="input.paper"`, "\nplain &amp; simple</textarea>")
	has("/board?workflow=ask/them", `value="ask/them"`, `name="input.topic" rows="2">`, "topic (required)")
	send := func(path string, form url.Values) (next string) {
		t.Helper()
		return b.act(path+"?"+form.Encode(), b.csrf("/board")).is(http.StatusSeeOther).Header.Get("Location")
	}
	inputs := func(tool string, args pagetest.Args, want string) {
		t.Helper()
		var got struct{ Inputs json.RawMessage }
		call(tool, args, &got)
		testkit.Equal(t, string(got.Inputs), want, "the inputs of %s", tool)
	}
	run := send("/runs", url.Values{"workflow": {"ask/them"}, "inputs_of": {"ask/them"}, "goal": {"g"}, "executor": {"SCRIPT"}, "input.topic": {"cats\r\nand dogs"}, "paths.places": {"idea.txt\r\n\r\n idea.txt "}, "input.paper": {" "}, "input.tone": {"loud"}})
	inputs("get_run", pagetest.Args{"run_id": strings.TrimPrefix(run, "/attempts/")}, `{"topic":"cats\nand dogs","places":["idea.txt","idea.txt"],"tone":"loud"}`)
	has(run, "<dt>topic</dt>", "cats\nand dogs")
	task := send("/tasks", url.Values{"project_id": {call.Project()}, "title": {"T"}, "workflow": {"ask/them"}, "inputs_of": {"ask/them"}, "paths.places": {"idea.txt"}})
	id := pagetest.Args{"task_id": strings.TrimPrefix(task, "/tasks/")}
	inputs("get_task", id, `{"places":["idea.txt"]}`)
	has(task, "<dt>places</dt>", "\nidea.txt</textarea>", `name="inputs_of" value="ask/them"`)
	send(task, url.Values{"workflow": {"ask/them"}, "inputs_of": {"ask/them"}, "input.topic": {"cats"}})
	inputs("get_task", id, `{"topic":"cats"}`)
	// The fields of one workflow are not those of another.
	send(task, url.Values{"workflow": {"ask/short"}, "inputs_of": {"ask/them"}, "input.topic": {"cats"}})
	inputs("get_task", id, `{}`)
}

// What an agent hands in is shown to the person who judges it, and runs nothing, loads nothing from elsewhere, and
// leads nowhere but out by a link that can be read.
func TestHostileFilesOnThePageOfAReview(t *testing.T) {
	root := pagetest.Project(t)
	var picture bytes.Buffer
	testkit.Must(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 2, 2))))
	const markup = "<script>window.hit=1</script><img src=x onerror=window.hit=1>"
	files := map[string]string{
		"a.md": "# Title\n\n" + markup + "\n\n[bad](javascript:window.hit=1) [worse](JaVaScRiPt:window.hit=1) [data](data:text/html,x) [there](//evil.example/x) [fine](https://good.example/) [near](b.json)\n\n" +
			"![pixel](https://evil.example/p.png) ![](//evil.example/q.png)\n\n<javascript:window.hit=1>\n\n```html\n" + markup + "\n```\n",
		"i.md":      "[w](JaVaScRiPt&colon;window.hit=1)\n\n[//]: # (skip the tests)\n\n```sh and push\n```\n",
		"j.sh":      "# set up\x1b]\nrm -rf /important\n#\x07\necho done\ntrue" + strings.Repeat(" ", 5000) + "; rm -rf /important\n",
		"b.json":    `{"a":["` + `<script>` + `"]}`,
		"c.html":    "<!doctype html>" + markup,
		"d.svg":     "<svg xmlns='http://www.w3.org/2000/svg' onload='window.hit=1'/>",
		"e.png":     picture.String(),
		"f.png":     "\x89PNG\r\n\x1a\n<script>window.hit=1</script>",
		"g.txt":     "safe \u202etxt.exe \x1b[2Jgone\n" + strings.Repeat("x", 10_000) + "\n",
		"h.go":      "package main // \"" + markup + "\n",
		"huge.txt":  "",
		"away.json": "{}",
	}
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/sign/job.yml": strings.Replace(signJob, "{type: file,", "{type: files,", 1), ".deepwork/jobs/sign/text.md": "Write.",
	})
	testkit.WriteAll(t, root, files)
	testkit.Must(t, os.Truncate(filepath.Join(root, "huge.txt"), 100<<20))
	_, call, who := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson})
	ann := who[0]
	id := call.Start(pagetest.Args{"goal": "Sign", "job_name": "sign", "workflow_name": "full"})
	finish := func(outputs ...string) {
		call("finished_step", pagetest.Args{"session_id": id, "step_id": "text", "outputs": pagetest.Args{"text": outputs}}, nil)
	}
	finish(slices.Collect(maps.Keys(files))...)
	testkit.Must(t, os.Remove(filepath.Join(root, "away.json")))
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(root, "away.json")))
	page := ann.get("/sessions/" + id)
	testkit.ContainsAll(t, page, []string{
		"<h1 id=\"h-title\">Title</h1>", `<a href="https://good.example/" rel="noopener noreferrer">fine</a>`, "worse", "&lt;script&gt;", `<span class="hl-k">package</span>`,
		`safe \u202etxt.exe \u001b[2Jgone`, "JaVaScRiPt&amp;colon;", "[//]: # (skip the tests)", "sh and push", "rm -rf /important", "The rest is left out here", "It is too large to show here", "outside the project", filepath.Join(root, "huge.txt"), "&#34;a&#34;",
	}, "the page")
	shown := page[strings.Index(page, `<form class="answer"`):]
	testkit.Lacks(t, shown, []string{"<script", `src="http`, `src="//`, `href="//`, "href=\"javascript", "href=\"data", "style=", "root:x:", "\u202e", "\x1b", strings.Repeat("x", 5000)}, "the page")
	testkit.Equal(t, regexp.MustCompile(`(?i)<[^>]*\son[a-z]+=`).FindString(shown), "", "a handler")
	images := regexp.MustCompile(`<img [^>]*>`).FindAllString(shown, -1)
	testkit.Need(t, len(images) == 2, "images: %q", images)
	for _, tag := range images {
		src := strings.ReplaceAll(regexp.MustCompile(`src="([^"]+)"`).FindStringSubmatch(tag)[1], "&amp;", "&")
		a := ann.do("GET", src, nil).is(http.StatusOK)
		testkit.Equal(t, a.Header.Get("Content-Type")+", "+a.Header.Get("X-Content-Type-Options")+", "+a.Header.Get("Content-Security-Policy"), "image/png, nosniff, default-src 'none'; sandbox", "%s", src)
		for _, other := range []string{"d.svg", "c.html", "../x.png", "/etc/passwd"} {
			u := testkit.Get(url.Parse(src)).Must(t)
			q := u.Query()
			q.Set("path", other)
			testkit.Equal(t, ann.do("GET", u.Path+"?"+q.Encode(), nil).StatusCode/100, 4, "%s as an image", other)
		}
		if strings.Contains(src, "e.png") {
			testkit.WriteAll(t, root, map[string]string{"e.png": picture.String() + "more"})
			testkit.Equal(t, ann.do("GET", src, nil).StatusCode/100, 4, "another image than was handed in")
		}
	}
	// Nobody judged these, so the whole content is still shown, and what has changed since.
	testkit.WriteAll(t, root, map[string]string{"h.go": "package other\n"})
	finish("h.go")
	page = ann.get("/sessions/" + id)
	testkit.True(t, regexp.MustCompile(`(?s)<table class="diff code whole" data-file="h.go">.*<summary>What has changed since the last hand-in</summary>.*<tr class="del"`).MatchString(page), "no content and changes")
	// What has changed is shown, even if files that have not leave no room for their content.
	big := strings.Repeat("a line that stays\n", 10_000)
	hand := func(text string) string {
		testkit.WriteAll(t, root, map[string]string{"big1.txt": big, "big2.txt": big, "big3.txt": big, "h.go": text})
		finish("big1.txt", "big2.txt", "big3.txt", "h.go")
		return ann.get("/sessions/" + id)
	}
	digest := find(t, digestField, hand("package last\n"))
	ann.act("/sessions/"+id+"/review?step=text&decision=fail&feedback=Rename+it&digest="+digest, ann.csrf("/sessions/"+id)).is(http.StatusSeeOther)
	hand("package last\n") // collects the answer
	page = hand("package renamed\n")
	testkit.True(t, regexp.MustCompile(`(?s)aria-label="changes of h.go".*<tr class="add".*renamed`).MatchString(page), "the change is not shown")
	testkit.Contains(t, page, "The rest is left out here")
}

// Where the page has no room for the files of a step, its links say of which step they are: it may have a folder of its own.
func TestLinksToFilesThatAreNotShown(t *testing.T) {
	root := pagetest.Project(t)
	steps, names := "", []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		steps += "  - {id: " + name + ", name: N, description: D, instructions_file: text.md, outputs: {o: {type: file, description: O, required: true}}, reviews: [{run_each: step, by: human, quality_criteria: {Good: Is it}}]}\n"
	}
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/many/text.md": "Write.", "o.txt": "o", ".deepwork/jobs/many/job.yml": "name: many\nversion: 1.0.0\nsummary: M\ncommon_job_info_provided_to_all_steps_at_runtime: C\nworkflows: [{name: all, summary: A, steps: [[" + strings.Join(names, ", ") + "]]}]\nsteps:\n" + steps})
	_, call, who := as(t, root, config.Token{Name: "ann", Rights: config.RightPerson})
	ann := who[0]
	id := call.Start(pagetest.Args{"goal": "G", "job_name": "many", "workflow_name": "all"})
	for _, name := range names {
		call("finished_step", pagetest.Args{"session_id": id, "step_id": name, "outputs": pagetest.Args{"o": "o.txt"}}, nil)
	}
	testkit.Contains(t, ann.get("/sessions/"+id), `/output?path=o.txt&amp;step=f"`)
}
