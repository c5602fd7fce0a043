package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"deepwork/actor/wait"
	"deepwork/session/attempt/runner"
	folder "deepwork/session/state"

	"github.com/anishathalye/porcupine"
)

// settleBoard waits until every execution has ended and no worktree is half-done: the last server finishes those of
// others beside its calls, and verify reports what is left.
func (s *simulation) settleBoard(ctx context.Context) error {
	for until := time.Now().Add(settleTime); ; _ = wait.For(ctx, 50*time.Millisecond) {
		open, attempt := "", ""
		err := s.query(ctx, "SELECT id, state FROM attempts WHERE state IN ('waiting', 'starting', 'running')",
			func() {}, &attempt, &open)
		if err != nil {
			return err
		}

		late := time.Now().After(until)
		if open == "" {
			if half, err := s.halfDone(ctx); err != nil || !half || late {
				return err
			}
			continue
		}
		if late {
			s.history.fault("an attempt that does not end", "attempt %s is %s", attempt, open)
			return nil
		}
	}
}

// halfDone reports whether the creation or removal of an attempt's worktrees is unfinished, or the removal of a deleted
// attempt's has not begun.
func (s *simulation) halfDone(ctx context.Context) (bool, error) {
	known, id := []string{}, ""
	if err := s.query(ctx, "SELECT id FROM attempts", func() { known = append(known, id) }, &id); err != nil {
		return false, err
	}

	journals, err := s.glob((*folder.Folder).Worktrees, ".journal", "*.json")
	for _, path := range journals {
		text, rerr := os.ReadFile(path)
		_, gone := os.Lstat(strings.TrimSuffix(filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.Base(path)),
			".json") + ".removing")
		whole := bytes.Contains(text, []byte(`"phase": "made"`)) &&
			slices.ContainsFunc(known, func(id string) bool { return bytes.Contains(text, []byte(id)) })
		if gone == nil || rerr == nil && !whole {
			return true, nil
		} else if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return false, rerr
		}
	}

	return false, err
}

func (s *simulation) agentLog() string { return filepath.Join(s.dir, "agents") }

// A began is an execution of an agent on the board.
type began struct {
	id, attempt, prompt, state, message string
	code                                int // its exit code, or -1
	started                             bool
}

// judgeBoard compares the board, the work of agents and the state of git with what clients were
// told. No server may run.
func (s *simulation) judgeBoard(ctx context.Context) error {
	did, err := readJournal(s.agentLog())
	if err != nil {
		return err
	}

	var id, text string
	var x began
	tasks := map[string][]string{}
	attempts := map[string][]string{}
	orders := map[string][]string{} // ids by token

	// Attempts, and those that were interrupted, which drops what is queued.
	there, cut := map[string]bool{}, map[string]bool{}
	err = errors.Join(s.query(ctx, "SELECT id, coalesce(description, '') FROM tasks", func() {
		tasks[text] = append(tasks[text], id)
	}, &id, &text),
		s.query(ctx, "SELECT id, coalesce(prompt, '') FROM attempts", func() {
			there[id] = true
			attempts[tokenIn(text)] = append(attempts[tokenIn(text)], id)
		}, &id, &text),
		s.query(ctx, "SELECT id, attempt_id, prompt, state, coalesce(final_message, ''), coalesce(exit_code, -1), "+
			"started_at IS NOT NULL FROM executions WHERE step_id IS NULL", func() {
			orders[tokenIn(x.prompt)] = append(orders[tokenIn(x.prompt)], x.id)
			cut[x.attempt] = cut[x.attempt] || x.state == "stopped" || x.state == "interrupted"
			s.judgeExecution(x, did)
		}, &x.id, &x.attempt, &x.prompt, &x.state, &x.message, &x.code, &x.started))
	if err != nil {
		return err
	}
	s.attempts, s.agents = len(there), len(did["start"])

	h := s.history
	stays := func(id string) bool { // nobody asked to delete the task
		return !slices.ContainsFunc(h.tasks[id], func(o porcupine.Operation) bool {
			return o.Input.(taskInput).Tool == "delete_task"
		})
	}
	h.once(aTask, tasks, func(_ string, e *effect) bool { return e.id != "" && stays(e.id) })
	h.once(anAttempt, attempts, func(_ string, e *effect) bool { return e.id != "" && stays(e.of) })
	h.once(anOrder, orders, func(_ string, o *effect) bool {
		return there[o.of] && (o.said == "started" || o.said == "queued" && !o.dropped && !cut[o.of])
	})
	h.once(anOrder, did["start"], func(string, *effect) bool { return false })
	return s.judgeWork(ctx, did["wrote"], did["commit"])
}

// judgeExecution checks that an execution ended as its agent did.
func (s *simulation) judgeExecution(x began, did journal) {
	token := tokenIn(x.prompt)
	o := s.history.effects[anOrder][token]
	if o == nil {
		return // reported by once
	}

	wrong := ""
	switch {
	case o.of != "" && o.of != x.attempt:
		wrong = "it was ordered of attempt " + o.of
	case slices.Contains([]string{"waiting", "starting", "running"}, x.state):
		wrong = "it has not ended"
	case x.state == "completed" && (o.order.exit != 0 || x.code != 0 || len(did["end"][token]) != 1):
		wrong = "its agent has not done it"
	case x.state == "completed" && x.message != "done "+token:
		wrong = "its agent has said something else"
	case x.state == "failed" && (x.code != failing || o.order.exit != failing) && x.started:
		wrong = "its agent has not failed so"
	case x.state == "stopped" && !s.stops[x.attempt]:
		wrong = "nobody has stopped it"
	}
	if wrong != "" {
		s.history.fault("a wrong execution of an agent", "%s: %s: %+v (%+v; started %v, ended %v)", token, wrong, x, o,
			did["start"][token], did["end"][token])
	}
}

// judgeWork checks that no agent still runs, that nothing agents wrote, by token, or committed is lost,
// and the repositories.
func (s *simulation) judgeWork(ctx context.Context, wrote, committed map[string][]string) error {
	h := s.history
	dirs, err := s.glob((*folder.Folder).Logs, "attempts", "*", "runs", "*")
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if alive, err := runner.Alive(dir); err != nil || alive {
			h.fault("an agent that goes on", "in %s (%v)", dir, err)
		}
	}

	there, err := s.glob((*folder.Folder).Worktrees, "*", "*", "work-*")
	if err != nil {
		return err
	}

	kept := map[string]bool{} // files, and ids of commits
	for _, path := range there {
		kept[filepath.Base(path)] = true
	}

	for _, f := range s.states() {
		if err := s.judgeRepo(ctx, f.Root, kept); err != nil {
			return err
		}
	}

	for _, token := range slices.Sorted(maps.Keys(wrote)) {
		if !kept["work-"+token] {
			h.fault("lost work", "what an agent has written for %s is in no worktree, on no branch and in no rescue",
				token)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(committed)) {
		if !kept[id] {
			h.fault("a lost commit", "no ref leads to %s", id)
		}
	}

	return nil
}

// judgeRepo adds the files of all branches and rescues of a repository, and its commits, to kept, and
// checks that its main checkout is unchanged, that main has only grown, and that it is intact.
func (s *simulation) judgeRepo(ctx context.Context, root string, kept map[string]bool) error {
	refs, err := s.git(ctx, root, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return err
	}
	for ref := range strings.FieldsSeq(refs) {
		names, err := s.git(ctx, root, "ls-tree", "-r", "--name-only", ref)
		if err != nil {
			return err
		}
		for name := range strings.FieldsSeq(names) {
			kept[name] = true
		}

		if strings.HasPrefix(ref, "refs/deepwork/rescue/") {
			s.rescues++
		}
	}
	commits, err := s.git(ctx, root, "rev-list", "--all")
	if err != nil {
		return err
	}
	for id := range strings.FieldsSeq(commits) {
		kept[id] = true
	}
	tips, err := s.git(ctx, root, "reflog", "show", "--format=%H", "refs/heads/main")
	if err != nil {
		return err
	}
	if left, err := s.git(ctx, root,
		append(append([]string{"rev-list"}, strings.Fields(tips)...), "--not", "refs/heads/main")...); err != nil ||
		left != "" {
		s.history.fault("commits were taken from main", "%v\n%s", err, left)
	}
	if said, err := s.git(ctx, root, "status", "--porcelain"); err != nil || said != "" {
		s.history.fault("the main checkout is changed", "%v\n%s", err, said)
	}
	if said, err := s.git(ctx, root, "fsck", "--no-dangling", "--no-progress"); err != nil ||
		strings.Contains(said, "missing") {
		s.history.fault("git fsck", "%v\n%s", err, said)
	}

	return nil
}

// glob finds files in a folder of the state of each clone of the project.
func (s *simulation) glob(in func(*folder.Folder) string, pattern ...string) (all []string, err error) {
	for _, f := range s.states() {
		found, gerr := filepath.Glob(filepath.Join(append([]string{in(f)}, pattern...)...))
		all, err = append(all, found...), errors.Join(err, gerr)
	}
	return all, err
}

// The model of a task of the board: its title, as one register, from creation to deletion. The
// effect of attempts on its status is not modeled.

// A taskInput is a call of create_task, update_task, get_task or delete_task.
type taskInput struct {
	Tool  string
	Title string // create_task and update_task
	// Request is create_task's request_id, which is also the description of the task. The calls of
	// one request until it is answered are one operation; later ones are repetitions.
	Request string
}

func (in taskInput) String() string {
	return in.Tool + "(" + strings.TrimSpace(in.Title+" "+in.Request) + ")"
}

// Outcomes of a call about a task, other than "is <title>".
const (
	taskDeleted = "deleted"
	taskGone    = "!gone" // there is no such task, or it was deleted
)

// A taskState is comparable, as the checker requires.
type taskState struct {
	made, gone bool
	title      string
}

func (s taskState) apply(in taskInput) (taskState, string) {
	switch {
	case in.Tool == "create_task" && !s.made:
		s.made, s.title = true, in.Title
	case !s.made || s.gone:
		return s, taskGone
	case in.Tool == "update_task":
		s.title = in.Title
	case in.Tool == "delete_task":
		s.gone = true
		return s, taskDeleted
	}
	return s, "is " + s.title
}

// taskModel is the register for the checker. One task is one history.
var taskModel = checked(taskState{}, func(s taskState, in taskInput, out string) []taskState {
	if n, said := s.apply(in); said == out || out == lostReply {
		return []taskState{n}
	}
	return nil
})
