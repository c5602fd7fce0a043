package runner

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"deepwork/actor/durable"
)

// The files of a run's folder.
const (
	specFile    = "spec.json"    // what to run; 0600, since it holds the prompt and the environment
	startedFile = "started.json" // the mark, before the agent is started, and who runs it, after
	exitFile    = "exit.json"    // how it ended
	spareFile   = "exit.spare"   // room for exit.json, so that a full disk cannot keep it from being written
	stopPrefix  = "stop."        // and milliseconds: somebody asked to stop it, with that grace
	lockFile    = "run.lock"     // locked by the shim for as long as it lives; never replaced
)

// spareSize is the room for an exit: its final message, however it is escaped,
// and all the rest.
const spareSize = 32 << 10

// A specRecord is the content of specFile.
type specRecord struct {
	Command []string `json:"command"`
	Work    string   `json:"work"`
	Log     string   `json:"log"`
	Env     []string `json:"env,omitempty"`
	Stdin   []byte   `json:"stdin,omitempty"`
	Mark    string   `json:"mark"` // stands in the environment of the agent and of all that it starts
}

// A startedRecord is the content of startedFile. PID is 0 in the mark that is
// written before the agent is started.
type startedRecord struct {
	PID       int       `json:"pid"`
	Start     string    `json:"start"` // when the system started it; a later process with the same number has another
	ShimPID   int       `json:"shim_pid"`
	Boot      string    `json:"boot"` // which run of the system the numbers belong to
	StartedAt time.Time `json:"started_at"`
	LogFrom   int64     `json:"log_from"` // the index of the run's first log entry
}

// markEnv holds the mark of a run in the environment of the agent and of all that
// it starts.
const markEnv = "DEEPWORK_ATTEMPT_RUN"

// Mark returns an entry of an environment by which process.EndMarked finds the
// processes that were given it, or "" if name is "". No name may begin another.
func Mark(name string) string {
	if name == "" {
		return ""
	}
	return markEnv + "=" + name
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// readJSON reads a record; it returns nil if there is none. A record is replaced
// as a whole, so one that cannot be parsed is an error.
func readJSON[T any](dir, name string) (*T, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	v := new(T)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", filepath.Join(dir, name), err)
	}
	return v, nil
}

// disk is what the files of a run are written with.
var disk durable.Disk

// writeJSON makes a record durable, replacing one that is there as a whole.
func writeJSON(dir, name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	return durable.Explain(disk.Put(path, data, durable.PutOptions{Temp: name + ".*.tmp"}), path)
}

// fill writes data to a file that was just opened, makes it durable and closes it.
func fill(f *os.File, data []byte) error {
	_, err := disk.Write(f, data)
	if err == nil {
		err = disk.Sync(f)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return durable.Explain(err, f.Name())
}

// putSpare sets room aside for the exit.
func putSpare(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, spareFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := fill(f, bytes.Repeat([]byte(" "), spareSize)); err != nil {
		return err
	}
	return disk.SyncFolder(dir)
}

// writeExit records how a run ended, durably, in the room that was set aside
// for it, if there is some.
func writeExit(dir string, e *Exit) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	spare := filepath.Join(dir, spareFile)
	f, err := os.OpenFile(spare, os.O_WRONLY, 0)
	if err != nil || len(data) > spareSize {
		if err == nil {
			f.Close()
		}
		return writeJSON(dir, exitFile, e)
	}
	// Blanks behind the record are no harm, and overwriting needs no new room.
	padded := append(data, bytes.Repeat([]byte(" "), spareSize-len(data))...)
	if err := fill(f, padded); err != nil {
		return err
	}
	if err := disk.Move(spare, filepath.Join(dir, exitFile)); err != nil {
		return err
	}
	return disk.SyncFolder(dir)
}

// removeFile removes a record, durably; a missing one is no error.
func removeFile(dir, name string) error { return disk.Drop(filepath.Join(dir, name)) }

// maxGrace is the longest grace period of a stop.
const maxGrace = 24 * time.Hour

// requestStop records a request to stop the run, with a grace period. Each grace
// is a name of its own, so no request takes back another.
func requestStop(dir string, grace time.Duration) error {
	return cmp.Or(os.WriteFile(filepath.Join(dir, fmt.Sprint(stopPrefix, grace.Milliseconds())), nil, 0o600), disk.SyncFolder(dir))
}

// requestedStop returns the shortest grace period of the requests to stop the run.
func requestedStop(dir string) (grace time.Duration, requested bool) {
	names, _ := os.ReadDir(dir)
	grace = maxGrace + 1
	for _, name := range names {
		if digits, is := strings.CutPrefix(name.Name(), stopPrefix); is {
			if ms, err := strconv.ParseUint(digits, 10, 31); err == nil {
				grace = min(grace, time.Duration(ms)*time.Millisecond)
			}
		}
	}
	return grace, grace <= maxGrace
}
