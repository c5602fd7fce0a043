package git

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// NoReflog is a setting for commands that create a branch: what a log of it would say is partly the
// choice of those who prepared the repository.
const NoReflog = "core.logAllRefUpdates=false"

// CheckBranch returns an error if creating or deleting a branch would write through a symbolic link
// in the place of the git folder or below it, for example out of the repository: git follows links
// in the places of refs and their logs. more are other paths that will be written, relative to the
// git folder with slashes.
func CheckBranch(gitDir, branch string, more ...string) error {
	for _, path := range append([]string{"packed-refs", "reftable", "refs/heads/" + branch, "logs/refs/heads/" + branch}, more...) {
		at := gitDir
		for part := range strings.SplitSeq("./"+path, "/") {
			at = filepath.Join(at, part)
			fi, err := os.Lstat(at)
			if err != nil {
				break // missing, so that nothing is below it
			}
			if fi.Mode()&(fs.ModeSymlink|fs.ModeIrregular) != 0 {
				return fmt.Errorf("%s is a link, and git would write where it leads: replace it with what it points to", at)
			}
		}
	}
	return nil
}
