package sqlstore

import "io/fs"

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
