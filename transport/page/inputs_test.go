package page_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"deepwork/actor/testkit"
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
    inputs:
      - {name: topic, description: What <about>}
      - {name: places, description: Where to ask, type: files, required: false}
      - {name: paper, description: The paper, type: file, required: false}
      - {name: tone, description: How, default: plain & simple}
    steps: [talk]
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
