//go:build unix

package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// The model knows what may become of a task, and takes nothing else.
func TestTaskModel(t *testing.T) {
	var (
		create = taskInput{Tool: "create_task", Title: "a", Request: "r"}
		get    = taskInput{Tool: "get_task"}
		remove = taskInput{Tool: "delete_task"}
		update = func(title string) taskInput { return taskInput{Tool: "update_task", Title: title} }
	)
	op := func(at int64, in taskInput, out string) porcupine.Operation {
		return porcupine.Operation{Input: in, Call: 2 * at, Output: out, Return: 2*at + 1}
	}
	open := func(at int64, in taskInput) porcupine.Operation { // lost, and its server lives
		return porcupine.Operation{Input: in, Call: 2 * at, Output: lost, Return: 1000}
	}
	type ops = []porcupine.Operation
	for name, c := range map[string]struct {
		ops ops
		ok  bool
	}{
		"looked":                          {ops{op(2, get, "is a")}, true},
		"changed":                         {ops{op(2, update("b"), "is b"), op(3, get, "is b")}, true},
		"a change lost":                   {ops{op(2, update("b"), "is b"), op(3, get, "is a")}, false},
		"made again":                      {ops{op(2, update("b"), "is b"), op(3, create, "is b"), op(4, get, "is b")}, true},
		"made anew":                       {ops{op(2, update("b"), "is b"), op(3, create, "is a"), op(4, get, "is a")}, false},
		"deleted":                         {ops{op(2, remove, taskDeleted), op(3, get, taskGone), op(4, create, taskGone)}, true},
		"deleted twice":                   {ops{op(2, remove, taskDeleted), op(3, remove, taskDeleted)}, false},
		"deleted, and there":              {ops{op(2, remove, taskDeleted), op(3, get, "is a")}, false},
		"gone by itself":                  {ops{op(2, get, taskGone)}, false},
		"a lost change that was made":     {ops{op(2, update("b"), lost), op(3, get, "is b")}, true},
		"a lost change that was not":      {ops{op(2, update("b"), lost), op(3, get, "is a")}, true},
		"a lost change that comes late":   {ops{open(2, update("b")), op(3, update("c"), "is c"), op(4, get, "is b")}, true},
		"a lost change of a dead server":  {ops{op(2, update("b"), lost), op(3, update("c"), "is c"), op(4, get, "is b")}, false},
		"a change that comes twice":       {ops{op(2, update("b"), "is b"), op(3, update("c"), "is c"), op(4, get, "is b")}, false},
		"a lost deletion that comes late": {ops{open(2, remove), op(3, get, "is a"), op(4, update("c"), taskGone)}, true},
	} {
		if got := porcupine.CheckOperations(taskModel, append(ops{op(1, create, "is a")}, c.ops...)); got != c.ok {
			t.Errorf("%s: %v, and is to be %v", name, got, c.ok)
		}
	}
}

// A report of deepwork check is taken for clean with what may be there, and with
// nothing else.
func TestFinds(t *testing.T) {
	const (
		half    = "/p/.deepwork/board.db: task 1 is half deleted\n    call delete_task for it again\n"
		note    = "note: /p: the clock was set back\n    nothing has to be done\n"
		torn    = "/p/session_1.json: its checksum is wrong\n    look at it\n"
		verdict = "9 sessions (3 active), 1 task: 1 problem\n"
	)
	for report, want := range map[string]bool{
		half + note + verdict: false, half + torn + verdict: true, torn + verdict: true, "Error: checking /p: no such folder\n": true,
	} {
		if got := finds(report, underWay); got != want {
			t.Errorf("%v, and is to be %v:\n%s", got, want, report)
		}
	}
}

// An order is found in the prompt that an agent gets, and nowhere else.
func TestTokenIn(t *testing.T) {
	o := newOrder("s3-7", rand.New(rand.NewPCG(1, 1)))
	for prompt, want := range map[string]string{
		o.String(): "s3-7",
		"# A title\n\nc3-1\n\n" + o.String() + "\n": "s3-7",
		"# sim-order s3-7 is a title\n":             "",
		"sim-order":                                 "",
	} {
		if got := tokenIn(prompt); got != want {
			t.Errorf("%q: %q, and is to be %q", prompt, got, want)
		}
	}
}

// What agents and the source have told is read whole or refused.
func TestLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := readExecutions(path); len(all) > 0 || err != nil {
		t.Errorf("no file: %v, %v", all, err)
	}
	put("start s1-1 7\nwrote s1-1 7\nstart s1-1 8\nend s1-1 8\n")
	if l, err := readAgentLog(path); err != nil || fmt.Sprint(l) != "{map[s1-1:2] map[s1-1:1] map[s1-1:1]}" {
		t.Errorf("%v, %v", l, err)
	}
	put("start s1-1\n")
	if _, err := readAgentLog(path); err == nil {
		t.Error("half a line is taken")
	}
	put(`{"id":"x-1","token":"x1-1"}` + "\n" + `{"id":"x-2","tok`)
	if all, err := readExecutions(path); err == nil || !strings.Contains(err.Error(), "x-2") {
		t.Errorf("half a line is taken: %v, %v", all, err)
	}
	put(`{"id":"x-1","token":"x1-1"}` + "\n")
	s, err := openSource(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	args := sourceArgs{Workflow: "w-" + slowWorkflow}
	args.Input.Token = "x1-2"
	s.execute(args)
	if all, err := readExecutions(path); err != nil || len(all) != 2 || all[1].ID != "x-2" || all[1].Token != "x1-2" {
		t.Errorf("%v, %v", all, err)
	}
}

// A file that only grows keeps, over a loss of power, what it was synced with last.
func TestPowerCutOfAJournal(t *testing.T) {
	dir, path := filepath.Join(t.TempDir(), "runs"), filepath.Join(t.TempDir(), "ledger")
	journal := filepath.Join(dir, "runs_1.jsonl")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(dir, 0o700))
	l, err := openLedger(path)
	must(err)
	grow := func(text string) {
		f, err := os.OpenFile(journal, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		must(err)
		_, err = f.WriteString(text)
		must(err)
		must(f.Close())
	}
	sync := func(failed error) {
		done, err := l.syncing(journal)
		must(err)
		if err := done(failed); err != failed {
			t.Fatal(err)
		}
	}
	grow("")
	must(l.all(dir))
	grow("1\n")
	sync(os.ErrInvalid) // of no use, and yet the next one says what it holds
	grow("2\n")
	sync(nil)
	grow("3\n")
	must(powerCut([]string{dir}, path, false, false))
	if got, err := os.ReadFile(journal); err != nil || string(got) != "1\n2\n" {
		t.Errorf("it holds %q (%v)", got, err)
	}
}
