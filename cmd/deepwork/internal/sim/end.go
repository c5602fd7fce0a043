//go:build unix

package sim

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"deepwork/session/store/local"
	"deepwork/session/workflow"
)

// end stops all servers, looks with a last one where each session is, and has
// `deepwork check` judge what is on disk.
func (w *world) end(ctx context.Context) error {
	for _, s := range w.servers {
		if r, _ := s.current(); r != nil {
			if err := r.stop(); err != nil {
				w.history.fault("server %d: %v", s.number, err)
			}
		}
	}
	last := newServer(len(w.servers), false)
	w.servers = []*server{last}
	if err := last.start(ctx, w.o, Plan{Ledger: w.ledger}); err != nil {
		return err
	}
	a := &agent{number: w.o.Clients, world: w, random: rand.New(rand.NewPCG(w.o.Seed, 1<<32)), home: last, pair: &book{}, clients: map[*run]*mcp.ClientSession{}}
	for _, id := range w.history.known() {
		for range 2 { // one may be lost
			a.perform(ctx, input{Tool: "get_step", Session: id})
		}
	}
	if err := w.settle(ctx, last); err != nil {
		return err
	}
	r, err := last.wait(ctx)
	if err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		w.history.fault("the last server: %v", err)
	}
	err = errors.Join(w.count(ctx), w.clearJournals(), w.judgeRuns(w.callers), w.judgeBoard(ctx, w.shelf))
	w.judge(ctx, "at the end")
	return err
}

// settle has the last server see to what others left of runs and of the board,
// and looks at each task.
func (w *world) settle(ctx context.Context, last *server) error {
	for _, c := range w.callers {
		c.home = last
		c.settle(ctx)
	}
	for _, c := range w.clerks {
		c.home = last
	}
	if len(w.shelf.tasks) == 0 {
		return nil // no board was made
	}
	if err := w.settleBoard(ctx); err != nil {
		return err
	}
	c := w.clerks[0]
	for _, id := range slices.Sorted(maps.Keys(w.shelf.tasks)) {
		// What a kill has cut short of a removal, the same call finishes.
		for n := 0; n < tries && w.shelf.tasks[id].removing; n++ {
			if t := c.register(ctx, id, taskInput{Tool: "delete_task"}); t.kind == given || t.kind == goneAnswer {
				break
			}
		}
		c.register(ctx, id, taskInput{Tool: "get_task"})
	}
	return nil
}

// underWay are what `deepwork check` may find while servers are killed: what the
// next server, or the next call of the same client, puts right.
var underWay = []string{
	" is half deleted", "the removal of attempt ", " was cut short", "and neither its server nor its agent runs",
}

// judge has `deepwork check` say whether all is well. but are findings that are no
// fault just now.
func (w *world) judge(ctx context.Context, when string, but ...string) {
	check := exec.CommandContext(ctx, w.o.Check[0], append(w.o.Check[1:len(w.o.Check):len(w.o.Check)], "check", "--path", w.project())...)
	if text, err := check.CombinedOutput(); err != nil && (len(but) == 0 || finds(string(text), but)) {
		w.history.fault("deepwork check %s: %v\n%s", when, err, text)
	}
}

// finds tells whether a report has something else than what may be there.
func finds(report string, but []string) bool {
	for line := range strings.Lines(report) {
		switch {
		case strings.HasPrefix(line, " "), strings.HasPrefix(line, "note: "): // a remedy; no fault
		case strings.HasSuffix(line, " problem\n"), strings.HasSuffix(line, " problems\n"): // the verdict
		case !slices.ContainsFunc(but, func(b string) bool { return strings.Contains(line, b) }):
			return true
		}
	}
	return false
}

// count holds the sessions on disk against those that were begun, and takes away
// what was damaged on purpose.
func (w *world) count(ctx context.Context) error {
	dir := workflow.TmpDir(w.project())
	store, err := local.Open(dir, local.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	aside, err := store.Damaged(ctx)
	if err != nil {
		return err
	}
	for _, path := range aside {
		id := strings.SplitN(filepath.Base(path)+"___", "_", 4)[2]
		if w.history.isDamaged(id) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	there := 0
	for info, err := range store.List(ctx) {
		if err != nil {
			return err
		}
		if !w.history.isDamaged(info.ID) {
			there++
			continue
		}
		if err := os.Remove(store.RecordPath(info.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	begun := len(w.history.known())
	if there < begun || there > begun+w.history.unknown {
		w.history.fault("%d sessions are on disk; %d were begun, and %d more may have been", there, begun, w.history.unknown)
	}
	return store.Close(ctx)
}
