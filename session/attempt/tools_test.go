package attempt

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/board"
)

// Every list is a list in JSON, however empty, and every field is there (seed
// 004, "Schema field documentation").
func TestReq004_EveryFieldIsDescribed(t *testing.T) {
	replies := []any{board.ProjectsReply{}, board.ReposReply{}, board.TasksReply{}, board.AttemptsReply{}, board.Task{}, DeleteReply{}, AttemptReply{}, FollowUpReply{}, TailReply{}, ExecutorsReply{}, board.ContextReply{}}
	var check func(v reflect.Type, path string)
	check = func(v reflect.Type, path string) {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice && !v.Implements(reflect.TypeFor[json.Marshaler]()) {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct || v == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			f := v.Field(i)
			at := path + "." + f.Name
			name, tag := f.Tag.Get("json"), f.Tag.Get("jsonschema")
			if name == "-" {
				continue // it is for people, and no agent sees it
			}
			if at == "DeleteReply.Notice" {
				name = strings.TrimSuffix(name, ",omitempty") // only stores that several machines share have it
			}
			if name == "" || strings.Contains(name, ",") {
				t.Errorf("%s has the JSON name %q", at, name)
			}
			if len(tag) < 10 {
				t.Errorf("%s is not described: %q", at, tag)
			}
			if strings.HasSuffix(name, "_id") && !strings.Contains(tag, "UUID") && !strings.Contains(tag, "hexadecimal") {
				t.Errorf("%s does not say what its id looks like: %q", at, tag)
			}
			if strings.HasSuffix(name, "_at") && !strings.Contains(tag, "RFC 3339") {
				t.Errorf("%s does not say how its time is written: %q", at, tag)
			}
			if strings.Contains(name, "workspace_id") {
				t.Errorf("%s is exposed", at)
			}
			check(f.Type, at)
		}
	}
	for _, r := range replies {
		check(reflect.TypeOf(r), reflect.TypeOf(r).Name())
	}
}

// A task whose dependencies are not done does not start, and says what blocks it.
func TestBlockedTask(t *testing.T) {
	p := newProject(t)
	s := p.open()
	project, repo := s.rootProject()
	first := s.newTask("! say hello")
	second, err := s.CreateTask(ctx, me, board.CreateTaskArgs{ProjectID: project, Title: "Second", DependsOn: []string{strings.ToUpper(first.TaskID)}})
	must(t, err)
	if want := []string{first.TaskID}; !slices.Equal(second.DependsOn, want) || !slices.Equal(second.BlockedBy, want) {
		t.Errorf("%+v", second)
	}
	if first.DependsOn == nil || first.BlockedBy == nil {
		t.Errorf("null instead of an empty list: %+v", first)
	}
	start := func() error {
		_, err := s.StartTaskAttempt(ctx, me, StartArgs{TaskID: second.TaskID, Executor: "TEST", Repos: []RepoArgs{{repo, "main"}}, RequestID: new("once")})
		return err
	}
	err = start()
	refused(t, err, session.StateError, "blocked", first.TaskID, "Add a basket", "todo", "update_task")
	if e, _ := errors.AsType[*session.Error](err); fmt.Sprint(e.Details["blocked_by"]) != fmt.Sprint([]string{first.TaskID}) {
		t.Errorf("%+v", e.Details)
	}
	if now := s.task(second.TaskID); now.Status != "todo" || now.LatestAttemptID != nil {
		t.Errorf("%+v", now)
	}
	update := func(id string, on []string) error {
		_, err := s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: id, DependsOn: on})
		return err
	}
	const nobody = "3b241101-e2bb-4255-8caf-4136c566a962"
	refused(t, update(first.TaskID, []string{second.TaskID}), session.ToolError, "dependency_cycle", first.TaskID+" depends on "+second.TaskID+" depends on "+first.TaskID)
	refused(t, update(first.TaskID, []string{nobody}), session.ToolError, "bad_dependency", nobody)
	refused(t, update(first.TaskID, []string{"web"}), session.ToolError, "malformed_id", "depends_on[0]")
	refused(t, update(first.TaskID, make([]string, task.MaxDependencies+1)), session.ToolError, "too_many_dependencies", "51", "50")
	_, err = s.UpdateTask(ctx, me, board.UpdateTaskArgs{TaskID: first.TaskID, Status: new("done")})
	must(t, err)
	if now := s.task(second.TaskID); len(now.BlockedBy) != 0 || len(now.DependsOn) != 1 {
		t.Errorf("%+v", now)
	}
	must(t, start())
	must(t, update(second.TaskID, nil))
	if now := s.task(second.TaskID); len(now.DependsOn) != 1 {
		t.Errorf("an omitted list cleared it: %+v", now)
	}
	must(t, update(second.TaskID, []string{}))
	if now := s.task(second.TaskID); len(now.DependsOn) != 0 {
		t.Errorf("%+v", now)
	}
	s.ends(*s.task(second.TaskID).LatestAttemptID)
}
