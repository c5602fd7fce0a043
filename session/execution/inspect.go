package execution

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"

	"deepwork/session"
)

// Inspect looks at the journals of runs of the project at root: whether each line
// can be read and is its server's, whether long results are there and whole, and
// at what was set aside. It changes nothing and may
// run beside servers; it blocks for the disk. What is under way may be among the
// findings: inspect again, and see session.Report.Confirmed.
func Inspect(ctx context.Context, root string, logger *slog.Logger) (session.Report, error) {
	i := &inspection{store: openStore(filepath.Join(root, ".deepwork", "tmp", "runs"), nil, logger, nil), runs: map[string]*record{}}
	if err := i.run(ctx); err != nil {
		return session.Report{}, fmt.Errorf("inspecting the runs of workflows: %w", err)
	}
	return i.report, nil
}

type inspection struct {
	store  *store
	runs   map[string]*record // the last record of each run
	report session.Report
}

func (i *inspection) run(ctx context.Context) error {
	names, err := i.store.names()
	if err != nil {
		return err
	}
	left := 0
	sure := true // that all runs are seen
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		path := filepath.Join(i.store.dir, name)
		if server, ok := serverOf(name, "runs_", ".jsonl"); ok {
			whole, err := i.journal(name, server)
			sure = sure && whole
			if err != nil {
				return err
			}
			continue
		}
		if strings.HasPrefix(name, "damaged_runs_") {
			i.report.Fault(path, "a journal of runs that could not be read to its end was set aside", "look what is missing, and delete it when it is not needed")
			continue
		}
		if server, ok := leftBy(name); ok && !i.store.member.Alive(server) {
			left++
		}
	}
	for _, r := range i.runs {
		if err := i.result(r); err != nil {
			return err
		}
	}
	for _, name := range names {
		id, ok := strings.CutSuffix(name, ".result")
		if ok && isID(id) && i.runs[id] == nil && sure {
			left++
		}
	}
	if left > 0 {
		i.report.Note(i.store.dir, fmt.Sprintf("files left by servers that were killed: %d", left), "the next server that runs workflows of other systems removes them")
	}
	going := 0
	for _, r := range i.runs {
		if !r.over() {
			going++
		}
	}
	if n := len(i.runs); n > 0 {
		i.report.Counts = []session.Count{{N: n, What: "run", Of: fmt.Sprintf("%d going on", going)}}
	}
	return nil
}

// journal reads one server's journal; whole: every line of it.
func (i *inspection) journal(name, server string) (whole bool, err error) {
	path := filepath.Join(i.store.dir, name)
	data, err := i.store.read(name, journalBounds)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // taken up while we looked
	}
	if err != nil {
		i.report.Fault(path, fmt.Sprintf("this journal of runs cannot be read: %v", err), "mend that, or move it away")
		return false, nil
	}
	whole = true
	n := 0
	for l := range lines(data) {
		n++
		if l.joined {
			i.report.Fault(path, fmt.Sprintf("the line break behind record %d was altered", n), "nothing is lost by it; the next server that starts after this one sets the journal aside and takes up what is in it")
		}
		switch {
		case errors.Is(l.err, errNewer):
			whole = false
			i.report.Note(path, fmt.Sprintf("record %d was written by a newer deepwork, and was not looked at", n), "check it with that version")
		case l.err != nil:
			whole = false
			i.report.Fault(path, fmt.Sprintf("record %d cannot be read: %v", n, l.err), "look at it; the next server that starts after this one sets the journal aside, takes up what can be read, and tells a run as unknown whose end cannot be found out")
		case l.rec.Server != server:
			i.report.Fault(path, fmt.Sprintf("record %d, of run %s, is of server %s, and the journal of server %s", n, l.rec.ExecutionID, l.rec.Server, server), "move the journal away if it was copied here")
		default:
			// In two journals is what a server was killed over while it took it up.
			if was := i.runs[l.rec.ExecutionID]; was == nil || was.Server == server || !was.over() {
				i.runs[l.rec.ExecutionID] = l.rec
			}
		}
	}
	return whole, nil
}

// result looks at a long result.
func (i *inspection) result(r *record) error {
	if !r.ResultKept {
		return nil
	}
	path := filepath.Join(i.store.dir, r.ExecutionID+".result")
	data, err := i.store.read(filepath.Base(path), maxOnDisk)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("it is not there")
	case err == nil:
		err = r.holds(data)
	}
	if err != nil {
		i.report.Fault(path, fmt.Sprintf("the result of run %s is damaged: %v", r.ExecutionID, err), "run the workflow again if the result is needed")
	}
	return nil
}
