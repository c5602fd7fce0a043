package transport

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	other := *c
	other.http = httpClient(t, token[0])
	step := func(job string) func() map[string]any {
		return func() map[string]any {
			r := structured(c.call("start_workflow", `{"goal":"g","job_name":"`+job+`","workflow_name":"full"}`))
			return c.call("finished_step", finishText(r["begin_step"].(map[string]any)["session_id"].(string)))
		}
	}
	var all sync.WaitGroup
	for name, make := range map[string]func() map[string]any{
		"review": step("checked"),
		"check":  step("proved"),
		"run": func() map[string]any {
			return c.call("run_workflow", `{"job_name":"trip","workflow_name":"dream","goal":"g","executor":"MINE","wait":true}`)
		},
		"attempt": func() map[string]any {
			return c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"MINE","wait":true}`, c.task()))
		},
		"follow-up": func() map[string]any {
			r := c.result(c.call("start_task_attempt", fmt.Sprintf(`{"task_id":%q,"executor":"TWICE","wait":true}`, c.task())))
			return c.call("follow_up", fmt.Sprintf(`{"attempt_id":%q,"action":"send","prompt":"More","wait":true}`, structured(r)["attempt_id"]))
		},
		"remote workflow": func() map[string]any { return c.call("hang", `{}`) },
	} {
		all.Go(func() {
			made := make()
			testkit.Need(t, made["resultType"] == "task", "%s: %v", name, made)
			_, fault := other.of("tasks/cancel", made["taskId"], "")
			testkit.Contains(t, fault, "there is no task", "%s, another caller", name)
			row := testkit.Get(s.tasks.Calls.LongCall(t.Context(), "ann", fmt.Sprint(made["taskId"]))).Must(t)
			var about struct {
				Execution string
				Agent     struct{ Attempt string }
			}
			must(t, json.Unmarshal(row.Work, &about))
			for ends, id := range map[string]string{"stop_attempt attempt_id": about.Agent.Attempt, "cancel_execution execution_id": about.Execution} {
				if tool, argument, _ := strings.Cut(ends, " "); id != "" {
					testkit.Equal(t, other.call(tool, fmt.Sprintf(`{%q:%q}`, argument, id))["isError"], true, "%s, %s of another caller", name, tool)
				}
			}
			got, _ := c.of("tasks/get", made["taskId"], "")
			testkit.Equal(t, got["status"], "working", "%s, then", name)
			c.cancel(made["taskId"])
			waitFor(t, "the task of "+name+" ends", func() bool {
				got, _ = c.of("tasks/get", made["taskId"], "")
				return got["status"] != "working"
			})
			// What is slow to stop ends as stopped.
			testkit.True(t, got["status"] == "cancelled" || strings.Contains(fmt.Sprint(got["result"]), "state:stopped"), "%s: %v", name, got)
		})
	}
	all.Wait()
	testkit.Equal(t, len(f.cancelled), 1, "cancelled at the source: %v", f.cancelled)
}
