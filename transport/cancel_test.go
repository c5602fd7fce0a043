package transport

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
	"deepwork/transport/web"
)

// tasks/cancel does, for each kind of work, what the tool does that ends it, for the caller of the task alone: both
// refuse another one.
func TestEachKindOfTaskIsCancelled(t *testing.T) {
	f := newFactory(standardWorkflows...)
	root := t.TempDir()
	waits := "while ! test -e " + filepath.Join(root, "go.txt") + "; do sleep 0.05; done; echo done"
	write(t, root, map[string]string{
		".deepwork/jobs/trip/job.yml": tripJob, ".deepwork/jobs/trip/idea.md": "Think.", "idea.txt": "sea", "h1.txt": "x", "check.sh": waits, "review.sh": slowReviewer,
		".deepwork/config.yml": "version: \"1.0\"\nexecutors: {MINE: {command: [sh, -c, '" + waits + "']}, TWICE: {command: [sh, -c, 'if test -e ran.txt; then " + waits + "; else echo > ran.txt; fi']}, CLAUDE_LIKE: {command: [sh, review.sh, claude]}}\nquality_gate: {reviewer_executor: CLAUDE_LIKE}\n" +
			"workflow_tools:\n" + fast + "  sources: [{name: factory, url: " + f.overWeb(t) + "}]\n",
	})
	write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
	checked := textJob(`by: human, quality_criteria: {Good: "Is it good?"}`, "text")[".deepwork/jobs/checked/job.yml"]
	write(t, root, map[string]string{".deepwork/jobs/proved/text.md": "Write.", ".deepwork/jobs/proved/job.yml": strings.Replace(strings.Replace(checked,
		"name: checked", "name: proved", 1), "    reviews: [{", "    checks: [{name: ready, run: [sh, check.sh]}]\n    reviews: [{", 1)})
	repository(t, root)
	s := serverOn(t, root, func(o *Options) { o.Toolsets = config.Toolsets })
	s.connected(t)
	file, token := tokens(t, "bob")
	anns, line, err := web.NewToken(config.Token{Name: "ann", Rights: config.RightAgents})
	must(t, err)
	must(t, os.WriteFile(file, append(testkit.Get(os.ReadFile(file)).Must(t), line+"\n"...), 0o600))
	c := &taker{t, httpClient(t, anns), overHTTP(t, s, web.Options{TokenFile: file}).URL(), takesTasks}
	of := func(r map[string]any) map[string]any { return r["structuredContent"].(map[string]any) }
	project := of(c.call("list_projects", `{}`))["projects"].([]any)[0].(map[string]any)["project_id"]
	board := func() any {
		return of(c.call("create_task", fmt.Sprintf(`{"project_id":%q,"title":"Plan"}`, project)))["task_id"]
	}
	step := func(job string) func() map[string]any {
		return func() map[string]any {
			r := of(c.call("start_workflow", `{"goal":"g","job_name":"`+job+`","workflow_name":"full"}`))
			return c.call("finished_step", finishText(r["begin_step"].(map[string]any)["session_id"].(string)))
		}
	}
	for name, make := range map[string]func() map[string]any{
		"review": step("checked"),
		"check":  step("proved"),
		"run": func() map[string]any {
			return c.call("run_workflow", `{"job_name":"trip","workflow_name":"dream","goal":"g","executor":"MINE","wait":true}`)
		},
		"attempt": func() map[string]any {
			return c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"MINE","wait":true}`, board()))
		},
		"follow-up": func() map[string]any {
			r := c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"TWICE","wait":true}`, board()))
			if r["resultType"] == "task" { // the machine is slow
				r = c.get(r["taskId"], "completed")["result"].(map[string]any)
			}
			a := of(r)["attempt_id"]
			return c.call("follow_up", fmt.Sprintf(`{"attempt_id":%q,"action":"send","prompt":"More","wait":true}`, a))
		},
		"remote workflow": func() map[string]any { return c.call("hang", `{}`) },
	} {
		made := make()
		if made["resultType"] != "task" {
			t.Errorf("%s: %v", name, made)
			continue
		}
		other := *c
		other.http = httpClient(t, token[0])
		if _, fault := other.of("tasks/cancel", made["taskId"], ""); !strings.Contains(fault, "there is no task") {
			t.Errorf("%s, another caller: %q", name, fault)
		}
		row := testkit.Get(s.tasks.Calls.LongCall(t.Context(), "ann", fmt.Sprint(made["taskId"]))).Must(t)
		var about struct {
			Execution string
			Agent     struct{ Attempt string }
		}
		must(t, json.Unmarshal(row.Work, &about))
		for ends, id := range map[string]string{"stop_attempt attempt_id": about.Agent.Attempt, "cancel_execution execution_id": about.Execution} {
			tool, argument, _ := strings.Cut(ends, " ")
			if id == "" {
				continue
			}
			if r := other.call(tool, fmt.Sprintf(`{%q:%q}`, argument, id)); r["isError"] != true {
				t.Errorf("%s, %s of another caller: %v", name, tool, r)
			}
		}
		if got, _ := c.of("tasks/get", made["taskId"], ""); got["status"] != "working" {
			t.Errorf("%s, then: %v", name, got)
		}
		if _, fault := c.of("tasks/cancel", made["taskId"], ""); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
		var got map[string]any
		waitFor(t, "the task of "+name+" ends", func() bool {
			got, _ = c.of("tasks/get", made["taskId"], "")
			return got["status"] != "working"
		})
		if got["status"] != "cancelled" && !strings.Contains(fmt.Sprint(got["result"]), "state:stopped") { // what is slow to stop ends as stopped
			t.Errorf("%s: %v", name, got)
		}
	}

	testkit.True(t, len(f.cancelled) == 1, "cancelled at the source: %v", f.cancelled)
}
