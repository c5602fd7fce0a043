package page_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

const signJob = `name: sign
version: 1.0.0
summary: Has a text signed
common_job_info_provided_to_all_steps_at_runtime: Be brief.
workflows:
  - {name: full, summary: All of it, steps: [text, send]}
steps:
  - id: text
    name: Text
    description: Write it
    instructions_file: text.md
    outputs: {text: {type: file, description: The text}}
    reviews: [{run_each: step, by: human, quality_criteria: {Sound: "Would you <sign> it?"}}]
  - {id: send, name: Send, description: Send it, instructions_file: text.md, outputs: {}, reviews: []}
`

// A person answers on the pages Now and of the session, about the outputs that they show; another caller
// sees no form, and what they send is refused.
func TestAPersonPassesAStepOnAPage(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{".deepwork/jobs/sign/job.yml": signJob, ".deepwork/jobs/sign/text.md": "Write.", "text.txt": "Dear all"})
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann", Rights: config.RightPerson}, config.Token{Name: "ann2", Group: "ann"})
	s := serve(t, root, web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	id := call.Start(pagetest.Args{"goal": pagetest.Hostile, "job_name": "sign", "workflow_name": "full"})
	type finished struct {
		Status   string
		Feedback *string
	}
	finish := func() (r finished) {
		t.Helper()
		call("finished_step", map[string]any{"session_id": id, "step_id": "text", "outputs": map[string]any{"text": "text.txt"}, "notes": pagetest.Hostile}, &r)
		return r
	}
	if r := finish(); r.Status != "needs_work" || !strings.HasPrefix(*r.Feedback, "Waiting: ") {
		t.Fatalf("%+v", r)
	}
	ann, bob := s.browser(t), s.browser(t)
	ann.login(tokens[0])
	bob.login(tokens[1])
	digest := regexp.MustCompile(`name="digest" value="([0-9a-f]{64})"`)
	form := func(page string) string {
		t.Helper()
		found := digest.FindStringSubmatch(page)
		if found == nil || !strings.Contains(page, "Would you &lt;sign&gt; it?") || !strings.Contains(page, "/output?path=text.txt") || strings.Contains(page, "<img") {
			t.Fatalf("no form, or a bad one: %s", page)
		}
		return found[1]
	}
	shown := form(ann.get("/sessions/" + id))
	if now := form(ann.get("/")); now != shown {
		t.Errorf("Now shows the digest %s, the session %s", now, shown)
	}
	if text := ann.get("/sessions/" + id + "/output?path=text.txt"); !strings.Contains(text, "Dear all") {
		t.Errorf("the output: %s", text)
	}
	csrf := ann.csrf("/sessions/" + id)
	review := func(b *browser, csrf, decision, digest, feedback string) answer {
		q := url.Values{"step": {"text"}, "decision": {decision}, "digest": {digest}, "feedback": {feedback}}
		return b.act("/sessions/"+id+"/review?"+q.Encode(), csrf)
	}
	if text := bob.get("/"); strings.Contains(text, `name="digest"`) {
		t.Errorf("a caller who is no person sees a form: %s", text)
	}
	for name, a := range map[string]answer{
		"no person":     review(bob, bob.csrf("/board"), "pass", shown, ""),
		"no decision":   review(ann, csrf, "", shown, "Yes"),
		"no digest":     review(ann, csrf, "pass", "", ""),
		"other outputs": review(ann, csrf, "pass", strings.Repeat("0", 64), ""),
		"no feedback":   review(ann, csrf, "fail", shown, " "),
	} {
		if a.StatusCode/100 != 4 {
			t.Errorf("%s: %s", name, a.Status)
		}
	}
	if r := finish(); !strings.HasPrefix(*r.Feedback, "Waiting: ") {
		t.Fatalf("answered by what was refused: %+v", r)
	}
	if a := review(ann, csrf, "fail", shown, "Too short"); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("fail: %s %s", a.Status, a.text)
	}
	if r := finish(); r.Status != "needs_work" || *r.Feedback != "Too short" {
		t.Errorf("after a fail: %+v", r)
	}
	testkit.WriteAll(t, root, map[string]string{"text.txt": "Dear all, more"})
	finish()
	var next string
	testkit.Until(t, "the other outputs on the page", func() bool {
		next = form(ann.get("/sessions/" + id))
		return next != shown
	})
	if a := review(ann, csrf, "pass", next, "Good"); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("pass: %s %s", a.Status, a.text)
	}
	if r := finish(); r.Status != "next_step" {
		t.Errorf("after a pass: %+v", r)
	}
	testkit.Until(t, "the evidence", func() bool {
		text := ann.get("/sessions/" + id)
		return strings.Contains(text, "Passed by a person: ann over page: Good") && !strings.Contains(text, `name="digest"`)
	})
}
