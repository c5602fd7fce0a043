// Package runner runs coding agents so that they outlive the server: a shim, which is the same
// binary in its own session, runs the agent, writes its log and records how it ended, in one
// folder per run. A server that starts later finds the run there, alive or ended (DESIGN "Task
// board").
//
// The state of a run is only on disk, under one lock. The shim holds the lock of its run as long as
// it lives, and marks the folder before it starts the agent. So a held lock means that the run is
// in progress; a free lock with the mark but no exit, that it was interrupted; a free lock without
// the mark, that the agent was never started.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"deepwork/actor/process"
	"deepwork/session/attempt/transcript"
	"deepwork/session/contain"
	"deepwork/session/git"
)

// ShimCommand is the first argument of a shim, which every program with this package can be. The second one
// is the run's folder.
const ShimCommand = "attempt-shim"

// A Spec describes a command to run. It is the content of specFile.
type Spec struct {
	Dir     string   `json:"dir"`             // the run's own folder, absolute; created by Start
	Log     string   `json:"log"`             // the attempt's log folder, shared by its runs
	Command []string `json:"command"`         // without a shell; names are looked up in PATH, paths in Work
	Work    string   `json:"work"`            // working directory, absolute
	Env     []string `json:"env,omitempty"`   // changes for process.With
	Stdin   []byte   `json:"stdin,omitempty"` // the agent's standard input
	// Contain, if not nil, is what the agent gets. Its working directory and environment count.
	Contain *contain.Plan `json:"contain,omitempty"`
	// Contained says, for people, under what it runs, such as "contained (bubblewrap 0.11.0; 3 hosts)", or is "".
	Contained string `json:"contained,omitempty"`
}

// An Exit says how a run ended.
type Exit struct {
	Code         int    `json:"code"`                    // -1 if ended by a signal or unknown
	Signal       string `json:"signal,omitempty"`        // such as "SIGKILL"
	Stopped      bool   `json:"stopped,omitempty"`       // Stop was called before it ended
	Interrupted  bool   `json:"interrupted,omitempty"`   // the shim died without recording an exit
	Left         bool   `json:"left,omitempty"`          // something that it started is known to run on
	NotStarted   string `json:"not_started,omitempty"`   // why it could not be started, or ""
	FinalMessage string `json:"final_message,omitempty"` // the program's own, or its last line
	Stderr       string `json:"stderr,omitempty"`        // its last lines on stderr, ready to be shown
	Failure      string `json:"failure,omitempty"`       // the last error that it reported; see transcript.Reader

	Usage *transcript.Usage `json:"usage,omitempty"` // what the agent reported; nil means nothing
	// the agent's name for the conversation; see transcript.Reader
	Conversation string `json:"conversation,omitempty"`

	StartedAt time.Time `json:"started_at"` // when the agent was, or should have been, started
	EndedAt   time.Time `json:"ended_at"`   // for an interrupted run: when that was noticed
}

// logIsIn reports whether the log of a stored Spec is next to dir or to its parent.
func (s *Spec) logIsIn(dir string) bool {
	parent := filepath.Dir(s.Log)
	return s.Log != "" && (parent == filepath.Dir(dir) || parent == filepath.Dir(filepath.Dir(dir)))
}

// ErrNoRun is the error of Find for a folder in which nothing runs or has run, and nothing will run unless
// Start is called.
var ErrNoRun = errors.New("no run was begun in this folder")

// A Runner starts and finds runs. Shim is the command line of the shim without its last argument, such as
// [/path/to/deepwork attempt-shim]. A Runner has no state and may be used by many goroutines.
type Runner struct{ Shim []string }

// Start begins a run. It returns when the shim has recorded that the agent runs, or why it does not. If a run
// was already begun in the folder, Start finds that run and ignores this Spec. If the folder has a Spec whose
// agent never ran, since the server was killed in between, Start begins it with this Spec. The agent of a
// folder is started at most once, no matter how often and by how many processes Start is called.
//
// If ctx ends first, Start returns its error, and the run may begin anyway; Find and a later Start report
// that. Any other error means that nothing runs.
func (r *Runner) Start(ctx context.Context, spec Spec) (*Process, error) {
	p, err := find(ctx, spec.Dir)
	if err != nil || p != nil {
		return p, err
	}
	if err := putSpec(ctx, spec); err != nil {
		return nil, fmt.Errorf("starting a run in %s: %w", spec.Dir, err)
	}
	said, life, err := r.startShim(ctx, spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("starting the shim of the run in %s: %w", spec.Dir, err)
	}
	if p, err = find(ctx, spec.Dir); p != nil {
		p.lifePipe = life
		return p, nil
	}

	life.Close()
	if err == nil {
		forget(ctx, spec.Dir) // the shim's error is the one to report
		err = fmt.Errorf("starting the shim of the run in %s: %s", spec.Dir, cmp.Or(said, "it ended without a word"))
	}

	return nil, err
}

// Find returns the run of a folder, running or ended, or ErrNoRun. It blocks while a shim is about to start
// its agent, and while the processes of a dead shim are being ended, but no longer than ctx.
//
// It removes a Spec whose agent never ran, so ErrNoRun also means that no shim that is still starting will
// run it.
func (r *Runner) Find(ctx context.Context, dir string) (*Process, error) {
	for {
		p, err := find(ctx, dir)
		if err != nil || p != nil {
			return p, err
		}

		gone, err := forget(ctx, dir)
		if err != nil {
			return nil, fmt.Errorf("looking for a run in %s: %w", dir, err)
		}
		if gone {
			return nil, ErrNoRun
		}
	}
}

// startShim starts the shim of a folder. It returns when the shim has recorded that the agent runs, or that
// it does not, or has ended. said is the reason if the shim could record neither; life ends with the shim.
func (r *Runner) startShim(ctx context.Context, dir string) (said string, life *os.File, err error) {
	if len(r.Shim) == 0 {
		return "", nil, errors.New("no command line of the shim is set")
	}
	// If git started this server, git's variables would make an agent commit to the main checkout.
	env := process.Without(os.Environ(), git.Bound...)
	return process.Detach(ctx, append(slices.Clone(r.Shim), dir), env)
}

// putSpec creates the folder and writes the Spec to it, unless its agent was started before. It replaces an
// existing Spec: only the latest request is run.
func putSpec(ctx context.Context, spec Spec) error {
	if err := cmp.Or(OwnFolder(spec.Dir), os.MkdirAll(spec.Dir, 0o700)); err != nil {
		return err
	}
	lock, err := lockRun(ctx, spec.Dir)
	if err != nil {
		return err
	}
	if lock == nil {
		return nil // a shim holds it, so the Spec exists
	}
	defer lock.Unlock()

	if exists(spec.Dir, startedFile) || exists(spec.Dir, exitFile) {
		return nil
	}
	return writeJSON(spec.Dir, specFile, &spec)
}

// forget removes the Spec from a folder whose agent never ran. It reports false if another process is just
// beginning the run.
func forget(ctx context.Context, dir string) (bool, error) {
	if !exists(dir, specFile) && !exists(dir, startedFile) && !exists(dir, exitFile) {
		return true, nil
	}

	lock, err := lockRun(ctx, dir)
	if err != nil || lock == nil {
		return false, err
	}
	defer lock.Unlock()
	if exists(dir, startedFile) || exists(dir, exitFile) {
		return false, nil
	}
	return true, disk.Drop(filepath.Join(dir, specFile))
}
