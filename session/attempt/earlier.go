package attempt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deepwork/actor/durable"
	"deepwork/actor/presence"
	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/attempt/runner"
	"deepwork/session/attempt/worktree"
	"deepwork/session/state"
	"deepwork/session/store/local/sqlite"
)

// Relocate corrects the paths on the board and in the journals after the project was moved from old
// to where f says, f having its state already. It blocks for the disk, and may be called again
// after an error. No server may run.
func Relocate(ctx context.Context, f *state.Folder, old string) error {
	to := func(path string) string {
		if rel, err := filepath.Rel(old, path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(f.Root, rel)
		}
		return path
	}
	e := &Engine{o: Options{Root: f.Root, State: f}.withDefaults()}
	e.log = e.o.Logger
	db := sqlite.New(sqlite.Options{Path: f.Database()})
	defer db.Close() // a change is on disk when its call returns
	dirs := []string{f.Worktrees()}
	if db.Exists() {
		more, err := db.Board().WorktreeFolders(ctx, task.Place{})
		if err != nil {
			return err
		}
		dirs = append(dirs, more...)
	}
	for _, from := range dirs {
		dir := to(from)
		if dir != from { // the folder of the journals has the path in its name
			err := (durable.Disk{}).Move(e.journalOf(from), e.journalOf(dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := e.keeper(dir).Relocate(ctx, from, to); err != nil {
			return err
		}
	}
	if !db.Exists() {
		return nil
	}
	return db.Relocate(ctx, to)
}

// Earlier is the board with worktrees and logs that earlier versions kept in the project. Anybody
// may have put them there: no link is followed, no stored command is run, and nothing outside of
// the project is changed, except for what the repositories of worktrees have of these.
type Earlier struct {
	Totals    task.Totals
	Worktrees int // attempts that have some
	Repos     []string

	state *state.Folder
	dir   string // .deepwork
	copy  string // of the board, migrated; "" means no board
	temp  string
}

// OpenEarlier reads what earlier versions left in the project. It copies the board to a temporary
// folder, and changes nothing else. It refuses what is in use or damaged. The caller closes it.
func OpenEarlier(ctx context.Context, f *state.Folder) (x *Earlier, err error) {
	x = &Earlier{state: f, dir: filepath.Join(f.Root, ".deepwork")}
	for _, path := range []string{"", "tmp", "worktrees", "worktrees/.journal", "logs", "logs/attempts"} {
		fi, err := os.Lstat(filepath.Join(x.dir, path))
		if err == nil && !fi.IsDir() {
			return nil, fmt.Errorf("%s is %s, not the folder that deepwork made: remove it", filepath.Join(x.dir, path), durable.Kind(fi.Mode()))
		}
	}
	for _, dir := range []string{"tmp", "tmp/board", "tmp/runs"} { // where versions had their locks
		if alive, _ := presence.New(presence.Options{Dir: filepath.Join(x.dir, dir)}).Others(); len(alive) > 0 {
			return nil, fmt.Errorf("a server of an earlier version runs here, which holds %s: stop it first", alive[0])
		}
	}
	if alive, _ := session.NewMember(f, nil).Others(); len(alive) > 0 {
		return nil, fmt.Errorf("a server runs on this project, which holds %s: stop it first", alive[0])
	}
	agents := local{runner.Runner{}, filepath.Join(x.dir, "logs")}
	for _, attempt := range x.attempts("logs/attempts") {
		if alive, err := agents.Alive(attempt, ""); alive || err != nil {
			return nil, errors.Join(err, fmt.Errorf("the agent of attempt %s may still run: stop it first, with the deepwork that started it", attempt))
		}
	}
	x.Worktrees = len(x.attempts("worktrees"))
	if x.temp, err = os.MkdirTemp("", "deepwork-adopt-"); err != nil {
		return nil, err
	}
	if err := x.readBoard(ctx); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// Close removes the temporary folder.
func (x *Earlier) Close() error { return os.RemoveAll(x.temp) }

// attempts returns the attempts that have a folder in a folder.
func (x *Earlier) attempts(dir string) (ids []string) {
	list, _ := os.ReadDir(filepath.Join(x.dir, dir)) // it may be missing
	for _, f := range list {
		if f.IsDir() && attemptID.MatchString(f.Name()) {
			ids = append(ids, f.Name())
		}
	}
	return ids
}

var attemptID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// readBoard copies the board with its log, and looks at the copy.
func (x *Earlier) readBoard(ctx context.Context) (err error) {
	path := filepath.Join(x.dir, "board.db")
	copied := filepath.Join(x.temp, "board.db")
	for _, suffix := range []string{"-wal", ""} {
		err := copyFile(path+suffix, copied+suffix)
		if errors.Is(err, fs.ErrNotExist) && suffix != "" {
			continue
		} else if errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return fmt.Errorf("copying the task board %s: %w", path, err)
		}
	}
	db := sqlite.New(sqlite.Options{Path: copied})
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.Open(ctx); err != nil { // migrates it
		return fmt.Errorf("reading a copy of %s: %w", path, err)
	}
	found, totals, err := db.Board().Inspect(ctx)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("%w: %s: %s; restore it from a copy, or move it away to adopt the rest", task.ErrDamaged, path, found[0].What)
	}
	if err == nil {
		x.Repos, err = db.Board().RepoPaths(ctx, task.Place{})
	}
	x.Totals, x.copy = totals, copied
	return err
}

func copyFile(from, to string) error {
	in, _, err := durable.OpenRegular(from, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Import moves all of it into the state folder, and then moves what it has read into a folder in
// .deepwork/tmp, whose path it returns. What cannot be taken over stays where it is, and is in the
// error. It blocks for the disk, and may be called again after an error or a crash.
func (x *Earlier) Import(ctx context.Context, now time.Time) (aside string, err error) {
	if err := session.MakeState(x.state); err != nil {
		return "", err
	}
	if err := x.sameDisk(); err != nil {
		return "", err
	}
	from := filepath.Join(x.dir, "worktrees")
	db := sqlite.New(sqlite.Options{Path: x.state.Database(), Make: x.state.Make})
	defer func() { err = errors.Join(err, db.Close()) }()
	if x.copy != "" {
		err := db.Import(ctx, x.copy, "Its server was of an earlier version, and has ended.", func(path string) string {
			if rel, err := filepath.Rel(from, path); err == nil && filepath.IsLocal(rel) {
				return filepath.Join(x.state.Worktrees(), rel)
			}
			return path
		})
		if errors.Is(err, sqlite.ErrOccupied) {
			err = fmt.Errorf("%s cannot be added to it: move it away to keep the tasks of now, or move the files %s* away to have those of before: %w", filepath.Join(x.dir, "board.db"), x.state.Database(), err)
		}
		if err != nil {
			return "", err
		}
	}
	keeper := worktree.New(worktree.Options{Dir: x.state.Worktrees(), Project: x.state.Root})
	var faults []error
	for _, attempt := range x.journals() {
		a, err := db.Board().Attempt(ctx, attempt)
		if errors.Is(err, task.ErrNotFound) {
			continue // a server would remove them
		}
		if err == nil {
			err = keeper.Import(ctx, from, attempt, a.Branch)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	for _, attempt := range x.attempts("logs/attempts") {
		if err := x.importLog(attempt); err != nil {
			faults = append(faults, fmt.Errorf("moving the log of attempt %s: %w", attempt, err))
		}
	}
	if left := x.attempts("worktrees"); len(left) > 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s has no journal, or is of no attempt on the board: look at what is in it, and remove it by hand", filepath.Join(from, left[0])))
	}
	if len(faults) > 0 {
		return "", errors.Join(faults...)
	}
	aside = filepath.Join(x.dir, "tmp", "adopted-"+now.UTC().Format("20060102T150405.000"))
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return "", err
	}
	for _, name := range []string{"worktrees", "logs", "board.db-shm", "board.db-wal", "board.db"} {
		err := (durable.Disk{}).Move(filepath.Join(x.dir, name), filepath.Join(aside, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return aside, nil
}

// sameDisk checks that folders of the project can be moved into the state folder.
func (x *Earlier) sameDisk() error {
	probe, err := os.MkdirTemp(x.dir, "adopt-")
	if err != nil {
		return err
	}
	there := filepath.Join(x.state.Dir, filepath.Base(probe))
	if err := os.Rename(probe, there); err != nil {
		return errors.Join(fmt.Errorf("folders cannot be moved from %s to %s: set %s to a folder on the project's disk that is not in the project: %w", x.dir, x.state.Dir, state.Env, err), os.Remove(probe))
	}
	return os.Remove(there)
}

// journals returns the attempts with a journal of an earlier version.
func (x *Earlier) journals() (ids []string) {
	list, _ := os.ReadDir(filepath.Join(x.dir, "worktrees", ".journal")) // it may be missing
	for _, f := range list {
		if id, is := strings.CutSuffix(f.Name(), ".json"); is && attemptID.MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// importLog moves the output of an attempt's agents, and nothing that says how they were started.
func (x *Earlier) importLog(attempt string) error {
	rel := filepath.Join("attempts", attempt, "log")
	from, to := filepath.Join(x.dir, "logs", rel), filepath.Join(x.state.Logs(), rel)
	if fi, err := os.Lstat(from); err != nil || !fi.IsDir() {
		return nil
	}
	list, err := os.ReadDir(from)
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	for _, f := range list {
		if err == nil && f.Type().IsRegular() && logSegment.MatchString(f.Name()) {
			err = (durable.Disk{}).MoveNew(filepath.Join(from, f.Name()), filepath.Join(to, f.Name()))
		}
	}
	return err
}

var logSegment = regexp.MustCompile(`^[0-9]{20}\.jsonl$`)
