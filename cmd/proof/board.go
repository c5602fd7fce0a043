package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"deepwork/actor/wait"
	board "deepwork/catalog/task"
	"deepwork/session/attempt/runner"
	"deepwork/session/store"
	"deepwork/session/store/local/sqlite"
)

// openBoard opens the task board to read it, beside servers too.
func (s *simulation) openBoard(ctx context.Context) (*sqlite.DB, error) {
	return sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(s.root, ".deepwork", "board.db"), ReadOnly: true})
}

// settleBoard waits until every attempt has ended.
func (s *simulation) settleBoard(ctx context.Context) error {
	b, err := s.openBoard(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	for until := time.Now().Add(settleTime); ; _ = wait.For(ctx, 50*time.Millisecond) {
		all, err := b.Board().AllAttempts(ctx)
		if err != nil {
			return err
		}
		open := slices.DeleteFunc(all, func(a board.Attempt) bool { return !a.State.Open() })
		if len(open) == 0 {
			return nil
		}
		if time.Now().After(until) {
			s.history.fault("an attempt that does not end", "attempt %s is %s", open[0].ID, open[0].State)
			return nil
		}
	}
}

func (s *simulation) agentLog() string { return filepath.Join(s.dir, "agents") }

// readAgentLog reads what agents have logged: by event ("start", "wrote", "end") and token
// the pids of those that have.
func readAgentLog(path string) (map[string]map[string][]string, error) {
	did := map[string]map[string][]string{"start": {}, "wrote": {}, "end": {}}
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading what agents did: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || did[f[0]] == nil {
			return nil, fmt.Errorf("reading what agents did: %s has a line %q", filepath.Base(path), line)
		}
		did[f[0]][f[1]] = append(did[f[0]][f[1]], f[2])
	}
	return did, nil
}

// judgeBoard compares the board, what agents have done and what git has with what clients
// were told. No server runs.
func (s *simulation) judgeBoard(ctx context.Context) error {
	db, err := s.openBoard(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	b := db.Board()
	did, err := readAgentLog(s.agentLog())
	if err != nil {
		return err
	}
	tasks, err := tasksOn(ctx, b)
	if err != nil {
		return err
	}
	all, err := b.AllAttempts(ctx)
	if err != nil {
		return err
	}
	attempts, there, executions := map[string][]string{}, map[string]bool{}, map[string][]board.Execution{}
	cut := map[string]bool{} // something of the attempt was stopped or interrupted, which drops what is queued
	for _, a := range all {
		there[a.ID] = true
		attempts[tokenIn(orEmpty(a.Prompt))] = append(attempts[tokenIn(orEmpty(a.Prompt))], a.ID)
		of, err := b.Executions(ctx, a.ID)
		if err != nil {
			return err
		}
		for _, x := range of {
			executions[tokenIn(x.Prompt)] = append(executions[tokenIn(x.Prompt)], x)
			cut[a.ID] = cut[a.ID] || x.State == board.Stopped || x.State == board.Interrupted
		}
	}
	s.attempts, s.agents = len(all), len(did["start"])

	h := s.history
	stays := func(id string) bool { // nobody has asked for the deletion of the task
		return !slices.ContainsFunc(h.tasks[id], func(o porcupine.Operation) bool { return o.Input.(taskInput).Tool == "delete_task" })
	}
	h.once(aTask, tasks, func(_ string, e *effect) bool { return e.id != "" && stays(e.id) })
	h.once(anAttempt, attempts, func(_ string, e *effect) bool { return e.id != "" && stays(e.of) })
	ids := map[string][]string{}
	for token, some := range executions {
		for _, x := range some {
			ids[token] = append(ids[token], x.ID)
			s.judgeExecution(token, x, did)
		}
	}
	h.once(anOrder, ids, func(_ string, o *effect) bool {
		return there[o.of] && (o.said == "started" || o.said == "queued" && !o.dropped && !cut[o.of])
	})
	h.once(anOrder, did["start"], func(string, *effect) bool { return false })
	return s.judgeWork(ctx, did["wrote"])
}

// tasksOn are the ids of all tasks of the board, by the request that is their description.
func tasksOn(ctx context.Context, b store.Board) (map[string][]string, error) {
	projects, _, _, err := b.Projects(ctx, board.Page{Limit: 10})
	if err != nil {
		return nil, err
	}
	tasks := map[string][]string{}
	for _, p := range projects {
		for page := (board.Page{Limit: 500}); ; {
			all, _, next, err := b.Tasks(ctx, p.ID, "", page)
			if err != nil {
				return nil, err
			}
			for _, t := range all {
				tasks[orEmpty(t.Description)] = append(tasks[orEmpty(t.Description)], t.ID)
			}
			if page.Cursor = next; next == "" {
				break
			}
		}
	}
	return tasks, nil
}

// judgeExecution checks that an execution has ended as its agent has.
func (s *simulation) judgeExecution(token string, x board.Execution, did map[string]map[string][]string) {
	o := s.history.effects[anOrder][token]
	if o == nil {
		return // once says so
	}
	wrong, code := "", -1
	if x.ExitCode != nil {
		code = *x.ExitCode
	}
	switch {
	case o.of != "" && o.of != x.AttemptID:
		wrong = "it was ordered of attempt " + o.of
	case x.State.Open():
		wrong = "it has not ended"
	case x.State == board.Completed && (o.order.exit != 0 || code != 0 || len(did["end"][token]) != 1):
		wrong = "its agent has not done it"
	case x.State == board.Completed && orEmpty(x.FinalMessage) != "done "+token:
		wrong = "its agent has said something else"
	case x.State == board.Failed && (code != failing || o.order.exit != failing) && x.StartedAt != nil:
		wrong = "its agent has not failed so"
	case x.State == board.Stopped && !s.stops[x.AttemptID]:
		wrong = "nobody has stopped it"
	}
	if wrong != "" {
		s.history.fault("a wrong execution of an agent", "%s of %s is %s with exit code %d: %s (%+v; started %v, ended %v; %q)", x.ID, token, x.State, code, wrong, o,
			did["start"][token], did["end"][token], orEmpty(x.FinalMessage))
	}
}

// judgeWork checks that no agent goes on, that nothing is lost of what agents have
// written, by token, that the main checkout is as it was, and that the repository is whole.
func (s *simulation) judgeWork(ctx context.Context, wrote map[string][]string) error {
	h := s.history
	dirs, err := filepath.Glob(filepath.Join(s.root, ".deepwork", "logs", "attempts", "*", "runs", "*"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if alive, err := runner.Alive(dir); err != nil || alive {
			h.fault("an agent that goes on", "in %s (%v)", dir, err)
		}
	}
	there, err := filepath.Glob(filepath.Join(s.root, ".deepwork", "worktrees", "*", "*", "work-*"))
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, path := range there {
		kept[filepath.Base(path)] = true
	}
	refs, err := s.git(ctx, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return err
	}
	for ref := range strings.FieldsSeq(refs) {
		names, err := s.git(ctx, "ls-tree", "-r", "--name-only", ref)
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
	for _, token := range slices.Sorted(maps.Keys(wrote)) {
		if !kept["work-"+token] {
			h.fault("lost work", "what an agent has written for %s is in no worktree, on no branch and in no rescue", token)
		}
	}
	if said, err := s.git(ctx, "status", "--porcelain"); err != nil || said != "" {
		h.fault("the main checkout is changed", "%v\n%s", err, said)
	}
	if said, err := s.git(ctx, "fsck", "--no-dangling", "--no-progress"); err != nil || strings.Contains(said, "missing") {
		h.fault("git fsck", "%v\n%s", err, said)
	}
	return nil
}
