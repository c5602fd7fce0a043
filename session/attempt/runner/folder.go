package runner

import (
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
	spareFile   = "exit.spare"   // removed to make room for exit.json on a full disk
	stopPrefix  = "stop."        // and milliseconds: somebody asked to stop it, with that grace
	lockFile    = "run.lock"     // locked by the shim for as long as it lives; never replaced
)

// spareSize is the room for an exit: its final message, however it is escaped,
// and all the rest.
const spareSize = 32 << 10

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

// OwnFolder returns an error if a link stands in the place of a folder of ours: nothing
// is read, written or run where it leads to.
func OwnFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
		return fmt.Errorf("%s is %s, not a folder that deepwork made; remove it", dir, durable.Kind(info.Mode()))
	}
	return nil
}

// maxRecord is the most bytes that a record may have: that of a prompt, escaped, and its
// environment, and more.
const maxRecord = 32 << 20

// readJSON reads a record; it returns nil if there is none. A record is replaced
// as a whole, so one that cannot be parsed is an error, as is a link.
func readJSON[T any](dir, name string) (*T, error) {
	data, _, err := durable.Read(filepath.Join(dir, name), maxRecord)
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
	return put(dir, name, data)
}

func put(dir, name string, data []byte) error {
	path := filepath.Join(dir, name)
	return durable.Explain(disk.Put(path, data, durable.PutOptions{Temp: name + ".*.tmp"}), path)
}

// writeExit records how a run ended, in the room that was set aside for it.
func writeExit(dir string, e *Exit) error {
	os.Remove(filepath.Join(dir, spareFile))
	return writeJSON(dir, exitFile, e)
}

// maxGrace is the longest grace period of a stop.
const maxGrace = 24 * time.Hour

// requestStop records a request to stop the run, with a grace period. Each grace
// is a name of its own, so no request takes back another.
func requestStop(dir string, grace time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(stopPrefix, grace.Milliseconds())), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // it was asked for before
	}
	return cmp.Or(err, f.Close(), disk.SyncFolder(dir))
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
