package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/actor/testkit"
)

// A mistake is a call that a client makes wrongly, and how it goes on: with nothing but what the error says, which
// learn finds. In the calls, $1 and so on are what learn found, and $name what an earlier reply was remembered by.
type mistake struct {
	wrong string // tool and arguments
	learn string
	right string // the call that must be accepted then
	keep  string // "name=path": a value of that reply, for later
}

// walk is what a user wants done; the client finds out the rest, with the mistakes that agents make.
var walk = []mistake{
	// Before anything is begun.
	{wrong: `finished_step {"outputs": {"idea": "idea.txt"}}`, learn: `call (start_workflow)|Begin one with (start_workflow); (get_workflows)`, right: `get_workflows {}`},
	{wrong: `get_step {}`, learn: `start_workflow; (get_workflows)`, right: `$1 {}`},
	{wrong: `get_workflow {}`, learn: `did you mean (get_workflows)\?`, right: `$1 {}`},
	{wrong: `get_workflows {"job": "trip"}`, learn: `call it again with (\{\})`, right: `get_workflows $1`},
	{wrong: `workflow_status {"execution_id": "00000000-0000-4000-8000-000000000000"}`, learn: `a call of a workflow tool starts one and returns its execution_id`, right: `list_workflow_tools {}`},
	// Starting.
	{wrong: `start_workflow {"goal": "Sea", "job_name": "tripp", "workflow_name": "dream"}`, learn: `The jobs there are: (\w+)`, right: `start_workflow {"goal": "Sea", "job_name": "$1", "workflow_name": "dream"}`, keep: `dream=begin_step.session_id`},
	{wrong: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "planning"}`, learn: `Available workflows: (\w+)`, right: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "$1"}`, keep: `plan=begin_step.session_id`},
	{wrong: `start_workflow {"goal": "Sea", "job_name": "trip/plan", "workflow_name": ""}`, learn: `The jobs there are: (\w+)`, right: `get_workflows {}`},
	{wrong: `start_workflow {"job_name": "trip", "workflow_name": "dream"}`, learn: `Missing required argument "(goal)": What the user`, right: `start_workflow {"$1": "Sea", "job_name": "trip", "workflow_name": "dream"}`, keep: `spare=begin_step.session_id`},
	{wrong: `abort_workflow {"session_id": "$spare"}`, learn: `Missing required argument "(explanation)": (Why)`, right: `abort_workflow {"session_id": "$spare", "$1": "Begun by mistake"}`},
	{wrong: `start_workflow {"goal": "  ", "job_name": "trip", "workflow_name": "dream"}`, learn: `(goal)`, right: `start_workflow {"$1": "Sea", "job_name": "trip", "workflow_name": "dream"}`, keep: `spare=begin_step.session_id`},
	{wrong: `start_workflow {"goals": "Sea", "job_name": "trip", "workflow_name": "dream"}`, learn: `did you mean (goal)\?`, right: `abort_workflow {"session_id": "$spare", "explanation": "Begun by mistake"}`},
	{wrong: `start_workflow {"goal": ["Sea"], "job_name": "trip", "workflow_name": "dream"}`, learn: `"goal": .* is an array; expected a (string)`, right: `get_workflows {}`},
	{wrong: `start_workflow {"goal": "Sea", "job_name": "broken", "workflow_name": "plan"}`, learn: `(?s)(/\S+/broken) does not load:.*version is missing.*(get_workflows)`, right: `$2 {}`},
	{wrong: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "dream", "session_id": "5f0c0a0e-9a6e-4a50-8a7e-0c9d5f6b8a11"}`, learn: `leave it out.* pass that one's id as (parent_session_id)`, right: `start_workflow {"goal": "Sea", "job_name": "trip", "workflow_name": "dream", "$1": "$plan"}`, keep: `spare=begin_step.session_id`},
	{wrong: `abort_workflow {"session_id": "$spare", "reason": "Enough"}`, learn: `Missing required argument "(explanation)"`, right: `abort_workflow {"session_id": "$spare", "$1": "Enough"}`},
	// Another session of the stack.
	{wrong: `finished_step {"step_id": "hotel", "outputs": {"hotels": ["h1.txt"]}}`, learn: `not current yet; the current step is '(\w+)'`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$dream", "step_id": "hotel", "outputs": {"hotels": ["h1.txt"]}}`, learn: `not in workflow 'trip/dream'`, right: `get_step {"session_id": "$dream"}`},
	{wrong: `finished_step {"session_id": "12345678", "step_id": "idea", "outputs": {"idea": "idea.txt"}}`, learn: `not found in this project.*(get_workflows)`, right: `$1 {}`},
	{wrong: `get_step {"session_id": "$plan-1"}`, learn: `is not a session_id: expected 8 hexadecimal characters, as in (begin_step) and stack`, right: `get_step {"session_id": "$plan"}`},
	// Outputs.
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea"}`, learn: `Missing required argument "(outputs)"`, right: `get_step {"session_id": "$plan"}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {}}`, learn: `Missing required outputs: (\w+)\. Step 'idea' declares: \w+ \((file), required\)`, right: `get_step {"session_id": "$plan"}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": "idea.txt"}`, learn: `Give an object of output names and paths; step 'idea' declares: (\w+)`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"ideas": "idea.txt"}}`, learn: `Unknown output names: ideas. Step 'idea' declares: (\w+) `, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": ["idea.txt"]}}`, learn: `must be a (single string path)`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "ideas.txt"}}`, learn: `file not found at 'ideas.txt'.*create the file first`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "/etc/hosts"}}`, learn: `outside the project root \((/\S+)\)`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": ".deepwork"}}`, learn: `'.deepwork' is a directory. Give the path of each file`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "The sea.\nIt is blue."}}`, learn: `looks like (the content of a file|file content)`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": {"path": "idea.txt"}}}`, learn: `must be a (single string path)`, right: `get_step {}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "idea.txt"}, "note": "Blue"}`, learn: `did you mean (notes)\?`, right: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "idea.txt"}, "$1": "Blue"}`},
	// A group.
	{wrong: `finished_step {"session_id": "$plan", "step_id": "idea", "outputs": {"idea": "h1.txt"}}`, learn: `finished already.*call (go_to_step) first`, right: `get_step {"session_id": "$plan"}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "booking", "outputs": {}}`, learn: `waits for '(hotel)', 'train'`, right: `get_step {"session_id": "$plan"}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "nope", "outputs": {}}`, learn: `not in workflow 'trip/plan'; the current concurrent group waits for '(\w+)'`, right: `get_step {"session_id": "$plan"}`},
	{wrong: `finished_step {"session_id": "$plan", "step_id": "hotel", "outputs": {"hotels": "h1.txt"}}`, learn: `'hotels' is declared as type 'files' and must be a (list)`, right: `finished_step {"session_id": "$plan", "step_id": "hotel", "outputs": {"hotels": ["h1.txt"]}}`},
	{wrong: `go_to_step {"session_id": "$plan", "step_id": "booking"}`, learn: `only leads back. To go forward, finish the current step with (finished_step)`, right: `finished_step {"session_id": "$plan", "step_id": "train", "outputs": {}}`},
	{wrong: `go_to_step {"session_id": "$plan", "step_id": "ideas"}`, learn: `Its steps up to the current one: '(\w+)'`, right: `finished_step {"session_id": "$plan", "step_id": "booking", "outputs": {}}`},
	// After the end.
	{wrong: `abort_workflow {"session_id": "$plan", "explanation": "Too late"}`, learn: `(is completed|has ended|is over)`, right: `get_workflows {}`},
	{wrong: `get_step {"session_id": "$plan"}`, learn: `(is completed|has ended|is over)`, right: `get_workflows {}`},
	{wrong: `workflows-execute-tool {}`, learn: `Agents of this project use get_workflows and (start_workflow)`, right: `get_workflows {}`},
	// The board.
	{wrong: `create_task {"title": "Walk"}`, learn: `Missing required argument "project_id": .*(list_projects)`, right: `$1 {}`, keep: `project=projects.0.project_id`},
	{wrong: `create_task {"project_id": "root", "title": "Walk"}`, learn: `is not a UUID`, right: `create_task {"project_id": "$project", "title": "Walk"}`, keep: `task=task_id`},
	{wrong: `create_task {"project_id": "00000000-0000-4000-8000-000000000000", "title": "Walk"}`, learn: `(list_projects) lists`, right: `$1 {}`},
	{wrong: `update_task {"task_id": "$task", "status": "finished"}`, learn: `(?s)finished.*\b(inreview)\b`, right: `update_task {"task_id": "$task", "status": "$1"}`},
	{wrong: `get_task {"task_id": "00000000-0000-4000-8000-000000000000"}`, learn: `(list_tasks) (?:gives|lists)`, right: `$1 {"project_id": "$project"}`},
	{wrong: `list_tasks {"project_id": "$project", "limit": 5000}`, learn: `(\d+) at most|at most (\d+)|1 to (\d+)`, right: `list_tasks {"project_id": "$project", "limit": 50}`},
	{wrong: `list_tasks {"project_id": "$project", "cursor": "2"}`, learn: `(next_cursor)`, right: `list_tasks {"project_id": "$project"}`},
	{wrong: `start_task_attempt {"task_id": "$task", "executor": "GPT", "repos": []}`, learn: `(list_executors)|executor`, right: `list_executors {}`},
	{wrong: `call_workflow_tool {"name": "greet"}`, learn: `There is no workflow tool 'greet'.*(list_workflow_tools)`, right: `$1 {}`},
}

// A client that knows only what the server says makes common mistakes, at least forty, and recovers
// from each by the error alone.
func TestFortyMistakesAndTheirRecovery(t *testing.T) {
	t.Parallel()
	testkit.Need(t, len(walk) >= 40, "%d mistakes", len(walk))
	s, _ := project(t, nil)
	cs := client(t, s)
	known := map[string]string{}
	call := func(line string) (reply any, err error) {
		for name, value := range known {
			line = strings.ReplaceAll(line, "$"+name, value)
		}
		tool, args, _ := strings.Cut(line, " ")
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(args)})
		if err == nil && res.IsError {
			err = errors.New(text(res))
		}
		if err != nil {
			return nil, err
		}
		return res.StructuredContent, nil
	}
	for i, m := range walk {
		what := fmt.Sprintf("mistake %d, %s", i+1, m.wrong)
		_, err := call(m.wrong)
		testkit.Need(t, err != nil, "%s: was accepted", what)
		learned := regexp.MustCompile(m.learn).FindStringSubmatch(err.Error())
		testkit.True(t, learned != nil, "%s: nothing to learn (%s) from: %v", what, m.learn, err)
		right := m.right
		for n, value := range learned {
			right = strings.ReplaceAll(right, fmt.Sprintf("$%d", n), value)
		}
		reply, err := call(right)
		testkit.Need(t, err == nil, "%s: then %s: %v", what, right, err)
		if name, path, ok := strings.Cut(m.keep, "="); ok {
			known[name] = fmt.Sprint(valueAt(reply, path))
			testkit.Need(t, known[name] != "<nil>", "%s: the reply to %s has no %s", what, right, path)
		}
	}
}

// valueAt is a value in decoded JSON, of the first entry of each list.
func valueAt(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		if list, is := v.([]any); is && len(list) > 0 {
			v = list[0]
			continue
		}
		in, _ := v.(map[string]any)
		v = in[key]
	}
	return v
}
