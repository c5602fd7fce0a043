package sqlstore

import (
	"fmt"
	"io/fs"

	"deepwork/catalog/task"
)

// Scripts returns the migrations that are embedded in a package, each a script, in the order of their
// names.
func Scripts(files fs.FS) (scripts []string) {
	names, _ := fs.Glob(files, "migrations/*.sql") // sorted; the pattern is valid
	for _, name := range names {
		script, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err)
		}
		scripts = append(scripts, string(script))
	}
	return scripts
}

// OtherVersion returns task.ErrVersion for a schema of a version that this program, whose own version is
// latest, can neither use nor migrate; it says what to do.
func OtherVersion(version string, latest int) error {
	return fmt.Errorf("%w: it has version %s, and this deepwork uses version %d: use the deepwork that wrote it, or set the database aside (with deepwork check --set-aside; on PostgreSQL by another schema, ?schema=NAME in its URL) and import the sessions with deepwork sessions import --all",
		task.ErrVersion, version, latest)
}
