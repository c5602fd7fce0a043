package page_test

import (
	"bytes"
	"image"
	"image/png"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// What an agent hands in is shown to the person who judges it, and runs nothing, loads nothing from elsewhere, and
// leads nowhere but out by a link that can be read.
func TestHostileFilesOnThePageOfAReview(t *testing.T) {
	t.Parallel()
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
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightPerson})
	s := serve(t, root, web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	id := call.Start(pagetest.Args{"goal": "Sign", "job_name": "sign", "workflow_name": "full"})
	var all []string
	for name := range files {
		all = append(all, name)
	}
	call("finished_step", map[string]any{"session_id": id, "step_id": "text", "outputs": map[string]any{"text": all}}, nil)
	testkit.Must(t, os.Remove(filepath.Join(root, "away.json")))
	testkit.Must(t, os.Symlink("/etc/passwd", filepath.Join(root, "away.json")))

	ann := s.browser(t)
	ann.login(tokens[0])
	page := ann.get("/sessions/" + id)
	for _, want := range []string{
		"<h1 id=\"h-title\">Title</h1>", `<a href="https://good.example/" rel="noopener noreferrer">fine</a>`, "worse", "&lt;script&gt;", `<span class="hl-k">package</span>`,
		`safe \u202etxt.exe \u001b[2Jgone`, "JaVaScRiPt&amp;colon;", "[//]: # (skip the tests)", "sh and push", "rm -rf /important", "The rest is left out here", "It is too large to show here", "outside the project", filepath.Join(root, "huge.txt"), "&#34;a&#34;",
	} {
		testkit.True(t, strings.Contains(page, want), "the page does not have %q", want)
	}
	shown := page[strings.Index(page, `<form class="answer"`):]
	for _, bad := range []string{"<script", `src="http`, `src="//`, `href="//`, "href=\"javascript", "href=\"data", "style=", "root:x:", "\u202e", "\x1b", strings.Repeat("x", 5000)} {
		testkit.True(t, !strings.Contains(shown, bad), "the page has %q", bad)
	}
	if tags := regexp.MustCompile(`(?i)<[^>]*\son[a-z]+=`).FindAllString(shown, -1); tags != nil {
		t.Errorf("handlers: %q", tags)
	}
	images := regexp.MustCompile(`<img [^>]*>`).FindAllString(shown, -1)
	testkit.Need(t, len(images) == 2, "images: %q", images)
	for _, tag := range images {
		src := strings.ReplaceAll(regexp.MustCompile(`src="([^"]+)"`).FindStringSubmatch(tag)[1], "&amp;", "&")
		a := ann.do("GET", src, nil)
		if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "image/png" || a.Header.Get("X-Content-Type-Options") != "nosniff" || a.Header.Get("Content-Security-Policy") != "default-src 'none'; sandbox" {
			t.Errorf("%s: %s %v", src, a.Status, a.Header)
		}
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
	call("finished_step", map[string]any{"session_id": id, "step_id": "text", "outputs": map[string]any{"text": []string{"h.go"}}}, nil)
	page = ann.get("/sessions/" + id)
	testkit.Equal(t, regexp.MustCompile(`(?s)<table class="diff code whole" data-file="h.go">.*<summary>What has changed since the last hand-in</summary>.*<tr class="del"`).MatchString(page), true, "content and changes")

	// What has changed is shown, even if files that have not leave no room for their content.
	big := strings.Repeat("a line that stays\n", 10_000)
	names := []string{"big1.txt", "big2.txt", "big3.txt", "h.go"}
	hand := func(text string) string {
		testkit.WriteAll(t, root, map[string]string{"big1.txt": big, "big2.txt": big, "big3.txt": big, "h.go": text})
		call("finished_step", map[string]any{"session_id": id, "step_id": "text", "outputs": map[string]any{"text": names}}, nil)
		return ann.get("/sessions/" + id)
	}
	digest := regexp.MustCompile(`name="digest" value="([0-9a-f]{64})"`).FindStringSubmatch(hand("package last\n"))[1]
	q := url.Values{"step": {"text"}, "decision": {"fail"}, "digest": {digest}, "feedback": {"Rename it"}}
	testkit.Equal(t, ann.act("/sessions/"+id+"/review?"+q.Encode(), ann.csrf("/sessions/"+id)).StatusCode, http.StatusSeeOther, "the fail")
	hand("package last\n") // collects the answer
	page = hand("package renamed\n")
	testkit.Equal(t, regexp.MustCompile(`(?s)aria-label="changes of h.go".*<tr class="add".*renamed`).MatchString(page), true, "the change")
	testkit.Contains(t, page, "The rest is left out here")
}

// Where the page has no room for the files of a step, its links say of which step they are: it may have a folder of its own.
func TestLinksToFilesThatAreNotShown(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	steps, names := "", []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		steps += "  - {id: " + name + ", name: N, description: D, instructions_file: text.md, outputs: {o: {type: file, description: O, required: true}}, reviews: [{run_each: step, by: human, quality_criteria: {Good: Is it}}]}\n"
	}
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/many/text.md": "Write.", "o.txt": "o", ".deepwork/jobs/many/job.yml": "name: many\nversion: 1.0.0\nsummary: M\ncommon_job_info_provided_to_all_steps_at_runtime: C\nworkflows: [{name: all, summary: A, steps: [[" + strings.Join(names, ", ") + "]]}]\nsteps:\n" + steps})
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightPerson})
	s := serve(t, root, web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	id := call.Start(pagetest.Args{"goal": "G", "job_name": "many", "workflow_name": "all"})
	for _, name := range names {
		call("finished_step", pagetest.Args{"session_id": id, "step_id": name, "outputs": pagetest.Args{"o": "o.txt"}}, nil)
	}
	ann := s.browser(t)
	ann.login(tokens[0])
	testkit.Contains(t, ann.get("/sessions/"+id), `/output?path=o.txt&amp;step=f"`)
}
