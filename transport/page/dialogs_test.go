package page_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"deepwork/catalog/config"
	"deepwork/transport/page/pagetest"
	"deepwork/transport/web"
)

// The dialog for a new task takes what the task waits for, and the limits of the run that it starts. What is wrong in
// them keeps the task, and starts nothing.
func TestNewTaskHasLimits(t *testing.T) {
	_, call, b := open(t)
	first := call.Task("First", "")
	b.do("GET", "/board?new=1", nil).is(http.StatusOK, `name="depends_on"`, `value="`+first+`"`, `name="max_cost_usd"`,
		`name="max_unknown"`, `name="max_minutes"`)
	add := func(more url.Values) answer {
		t.Helper()
		form := url.Values{"project_id": {call.Project()}, "title": {"T"}, "workflow": {"trip/plan"},
			"lead": {"server"}, "executor": {"SCRIPT"}, "start": {"1"}}
		for name, values := range more {
			form[name] = values
		}
		to := b.act("/tasks?"+form.Encode(), b.csrf("/board")).is(http.StatusSeeOther).Header.Get("Location")
		return b.do("GET", to, nil)
	}
	limits := url.Values{"max_cost_usd": {"2.5"}, "max_unknown": {"3"}, "max_minutes": {"5"}}
	add(limits).is(http.StatusOK, "at most $2.50", "at most 3 agents of unknown cost", "at most 5 minutes")

	limits.Set("depends_on", first)
	add(limits).is(http.StatusOK, "The task is on the board, but no agent was started.", "It cannot start yet",
		`href="/tasks/`+first+`">First</a>`)
	for field, c := range map[string]struct{ value, want string }{
		"max_minutes":  {"-1", "The minutes are &#34;-1&#34;: expected a positive number"},
		"max_cost_usd": {"-1", "max_cost_usd is -1: expected an amount of USD of at least 0."},
		"max_unknown":  {"1.5", "&#34;1.5&#34; is not a number, or not a whole one"},
	} {
		add(url.Values{field: {c.value}}).is(http.StatusOK, "but no agent was started.", c.want,
			"No agent has worked on it yet.")
	}
}

// Only the owner of the board gives a task to a group of tokens, whose members then see it.
func TestOnlyTheOwnerGivesTasksToAGroup(t *testing.T) {
	root := pagetest.Project(t)
	_, call, all := as(t, root, config.Token{Name: "ann", Rights: config.AllRights},
		config.Token{Name: "bob", Group: "web"})
	ann, bob := all[0], all[1]
	task := call.Task("Ours", "")
	ann.do("GET", "/tasks/"+task, nil).is(http.StatusOK).lacks(`name="group"`)
	ann.act("/tasks/"+task+"?group=web", ann.csrf("/board")).is(http.StatusForbidden,
		"Only the owner of the board gives tasks to a group.")
	bob.do("GET", "/tasks/"+task, nil).is(http.StatusNotFound)

	owner := serve(t, root, web.Options{Secret: "once"}).browser(t)
	owner.do("GET", "/login?secret=once", nil).leads("/")
	owner.do("GET", "/tasks/"+task, nil).is(http.StatusOK, `name="group" value="" maxlength="64"`)
	owner.act("/tasks/"+task+"?group=a+b", owner.csrf("/board")).is(http.StatusBadRequest,
		"The task is not given to a group", "1 to 64 letters")
	owner.act("/tasks/"+task+"?group=web", owner.csrf("/board")).leads("/tasks/" + task)
	bob.do("GET", "/tasks/"+task, nil).is(http.StatusOK, "<dt>Group</dt><dd>web</dd>")
	owner.act("/tasks/"+task+"?group=", owner.csrf("/board")).leads("/tasks/" + task)
	bob.do("GET", "/tasks/"+task, nil).is(http.StatusNotFound)
	if strings.Contains(owner.get("/tasks/"+task), "<dt>Group</dt>") {
		t.Error("the task is still the group's")
	}
}
