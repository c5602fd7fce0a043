package runner

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// maxGrace is the longest grace period of a stop.
const maxGrace = 24 * time.Hour

// askToStop records that somebody asks to stop the run, with a grace period. Each
// grace is a name of its own: nobody takes back what another has asked for.
func askToStop(dir string, grace time.Duration) error {
	f, err := os.OpenFile(filepath.Join(dir, stopPrefix+strconv.FormatInt(grace.Milliseconds(), 10)), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return disk.SyncFolder(dir)
}

// askedToStop returns the shortest grace period that somebody has asked for.
func askedToStop(dir string) (grace time.Duration, asked bool) {
	names, err := os.ReadDir(dir)
	if err != nil {
		return 0, false
	}
	for _, name := range names {
		digits, ok := strings.CutPrefix(name.Name(), stopPrefix)
		ms, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || ms < 0 || ms > int64(maxGrace/time.Millisecond) {
			continue
		}
		if d := time.Duration(ms) * time.Millisecond; !asked || d < grace {
			grace, asked = d, true
		}
	}
	return grace, asked
}
