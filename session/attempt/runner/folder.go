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
	specFile    = "spec.json"    // the command; 0600, since it holds the prompt and the environment
	startedFile = "started.json" // the mark, written before the agent starts; later its process
	exitFile    = "exit.json"    // how the run ended
	spareFile   = "exit.spare"   // removed to make room for exit.json on a full disk
	stopPrefix  = "stop."        // and milliseconds: a request to stop with that grace period
	lockFile    = "run.lock"     // locked by the shim as long as it lives; never replaced
)

// spareSize is the space for an exit: its final message and its last lines on stderr, fully escaped, and the
// other fields.
const spareSize = 64 << 10

// A startedRecord is the content of startedFile. PID is 0 in the mark that is
// written before the agent is started.
type startedRecord struct {
	PID       int       `json:"pid"`
	Start     string    `json:"start"` // distinguishes processes with one PID
	ShimPID   int       `json:"shim_pid"`
	Boot      string    `json:"boot"` // the boot of the system to which the numbers belong
	StartedAt time.Time `json:"started_at"`
	LogFrom   int64     `json:"log_from"` // the index of the run's first log entry
	Contained string    `json:"contained,omitempty"`
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// OwnFolder returns an error if one of our folders is a link: nothing is read, written or run behind a link.
func OwnFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err == nil && info.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
		return fmt.Errorf("%s is %s, not a folder that deepwork made; remove it", dir, durable.Kind(info.Mode()))
	}
	return nil
}

// maxRecord is the maximum size of a record in bytes: an escaped prompt, its environment, and some reserve.
const maxRecord = 32 << 20

// readJSON reads a record, or returns nil if there is none. Records are replaced atomically, so one that
// cannot be parsed is an error; so is a link.
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

// disk writes the files of a run.
var disk durable.Disk

// writeJSON writes a record durably and atomically.
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

// writeExit records how a run ended, in the space reserved for that.
func writeExit(dir string, e *Exit) error {
	os.Remove(filepath.Join(dir, spareFile))
	return writeJSON(dir, exitFile, e)
}

// maxGrace is the longest grace period of a stop.
const maxGrace = 24 * time.Hour

// requestStop records a request to stop the run, with a grace period. Each grace has its own file
// name, so no request overwrites another.
func requestStop(dir string, grace time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(stopPrefix, grace.Milliseconds())),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil // requested before
	}
	return cmp.Or(err, f.Close(), disk.SyncFolder(dir))
}

// requestedStop returns the shortest grace period of the requests to stop the run.
func requestedStop(dir string) (grace time.Duration, requested bool) {
	names, _ := os.ReadDir(dir)
	grace = maxGrace + 1
	for _, name := range names {
		if digits, ok := strings.CutPrefix(name.Name(), stopPrefix); ok {
			if ms, err := strconv.ParseUint(digits, 10, 31); err == nil {
				grace = min(grace, time.Duration(ms)*time.Millisecond)
			}
		}
	}
	return grace, grace <= maxGrace
}
