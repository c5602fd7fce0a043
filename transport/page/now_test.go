package page_test

import (
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// The person at deepwork ui sees every step that waits for a person, also those of callers with tokens,
// who may not override, and where no board is served.
func TestStepsOfOthersNeedThePerson(t *testing.T) {
	root := pagetest.Project(t)
	testkit.WriteAll(t, root, map[string]string{
		".deepwork/config.yml":        "quality_gate: {override: human}\n",
		".deepwork/jobs/memo/do.md":   "Do it.\n",
		".deepwork/jobs/memo/job.yml": "name: memo\nversion: 1.0.0\nsummary: M\ncommon_job_info_provided_to_all_steps_at_runtime: I\nworkflows:\n  - {name: w, summary: W, steps: [a]}\nsteps:\n  - {id: a, name: A, description: A, instructions_file: do.md, outputs: {out: {type: file, description: Out, required: true}}, reviews: [{run_each: out, quality_criteria: {good: \"Is it good?\"}}]}\n",
	})
	file, tokens := pagetest.Tokens(t, config.Token{Name: "ann"}, config.Token{Name: "bob"})
	s := serve(t, root, web.Options{TokenFile: file})
	call := pagetest.Connect(t, s.url, tokens[0])
	id := call.Start(pagetest.Args{"goal": "write a memo", "job_name": "memo", "workflow_name": "w"})
	call("finished_step", map[string]any{"session_id": id, "outputs": map[string]any{"out": "idea.txt"}}, nil)
	waits := "Step a: write a memo"
	bob := s.browser(t)
	bob.login(tokens[1])
	if text := bob.get("/"); strings.Contains(text, waits) {
		t.Errorf("bob sees it:\n%s", text)
	}
	for _, sets := range [][]string{nil, {"workflows"}} {
		ui := serveOf(t, transport.Options{ProjectRoot: root, Toolsets: sets}, web.Options{Secret: "once"})
		person := ui.browser(t)
		person.do("GET", "/login?secret=once", nil)
		if text := person.get("/"); !strings.Contains(text, waits) {
			t.Errorf("with the toolsets %v it is not shown:\n%s", sets, text)
		}
		if text := person.get("/?q=elephant"); strings.Contains(text, waits) || strings.Contains(text, "Nothing waits") || !strings.Contains(text, "matches the filter") {
			t.Errorf("a filter hides what waits, and the page does not say so:\n%s", text)
		}
	}
}
