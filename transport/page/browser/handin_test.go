package browser

import (
	"bytes"
	"image"
	"image/png"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/page/pagetest"
)

// A person reads what an agent handed in, comments on lines, which becomes its feedback, sees what has changed, and
// passes it with one click. No hostile file runs anything.
func TestAPersonReviewsOnAPage(t *testing.T) {
	t.Parallel()
	root := pagetest.Project(t)
	var picture bytes.Buffer
	testkit.Must(t, png.Encode(&picture, image.NewGray(image.Rect(0, 0, 40, 20))))
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/jobs/report/job.yml": strings.NewReplacer("type: file,", "type: files,", "run_each: out,", "run_each: out, by: human,").Replace(report[".deepwork/jobs/report/job.yml"]),
		".deepwork/jobs/report/do.md":   "Do it.\n",
		"a.go":                          "package a\n\n// " + pagetest.Hostile + "\nfunc A() int { return 1 }\n",
		"b.md":                          "# Title\n\n" + pagetest.Hostile + "\n\n| a | b |\n|---|---|\n| 1 | [x](javascript:window.hit=1) |\n\n```\ncode\n```\n",
		"c.png":                         picture.String(),
		"d.json":                        `{"a":[1,2]}`,
		"e.svg":                         `<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1"><script>window.hit=1</script></svg>`,
	})
	s, ui := serve(t, root, overHTTP...), serve(t, root, "ui", "--no-open")
	call := pagetest.Connect(t, s.url, "")
	id := call.Start(args{"goal": "Write about the sea", "job_name": "report", "workflow_name": "write"})
	var r struct{ Status, Feedback string }
	handIn := func() {
		t.Helper()
		call("finished_step", args{"session_id": id, "step_id": "draft", "outputs": args{"out": []string{"a.go", "b.md", "c.png", "d.json", "e.svg"}}}, &r)
	}
	handIn()
	b := browse(t, ui)
	b.open(ui.login[len(ui.url):])
	b.open("/sessions/" + id)
	b.until(`document.querySelector('.markdown h1')?.innerText === 'Title' && document.querySelector('.handed img').naturalWidth === 40`)
	b.check("review")
	b.open("/sessions/" + id)

	// A comment by a click on a line's number, and another one by keys.
	const field = `document.querySelector('.answer textarea')`
	b.use(".handed[aria-label='a.go'] tr:nth-child(4) .no:nth-child(2)", "4", `e.click()`)
	b.until(`document.activeElement === ` + field + ` && ` + field + `.value === 'a.go:4: '`)
	b.press("return 2")
	b.use(".handed[aria-label='a.go'] tr:nth-child(1)", "1 package a", `e.focus(); e.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))`)
	b.until(field + `.value === 'a.go:4: return 2\na.go:1: '`)
	b.press("say more")
	b.click("Fail")
	b.until(has("Now tell the agent to go on"))
	handIn()
	testkit.True(t, r.Status == "needs_work" && strings.Contains(r.Feedback, "a.go:4: return 2\na.go:1: say more"), "the agent is told %+v", r)
	testkit.WriteAll(t, root, map[string]string{"a.go": "package a\n\n// " + pagetest.Hostile + "\nfunc A() int { return 2 }\n"})
	handIn()
	b.until(`document.querySelector('.handed tr.add')?.innerText.includes('return 2') && document.querySelector('.handed tr.del').innerText.includes('return 1')`)
	b.check("review-again")
	b.open("/sessions/" + id)
	b.click("Pass")
	b.until(has("Passed by local"))
	handIn()
	testkit.Equal(t, r.Status, "next_step", "the agent goes on")
}
