package git

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// identityTime bounds Identity. Without a commit-graph the history of the largest repositories takes ten
// seconds.
const identityTime = 30 * time.Second

// Identity returns what identifies the repository of a folder on every machine: the URL of its remote
// (origin, else the first), as configured, and the hash of its first commit. Either is "" if it does
// not exist, both outside of a repository. A shallow clone has no first commit. It takes 30 s at most.
func Identity(ctx context.Context, dir string) (remote, root string, err error) {
	ctx, cancel := context.WithTimeout(ctx, identityTime)
	defer cancel()
	var shallow []string
	said := func(args ...string) (lines []string) {
		if err != nil {
			return nil
		}
		out, failed := Output(ctx, Command{Dir: dir, Args: args})
		if failed != nil && (ExitCode(failed) != 1 || shallow == nil) { // 1 means that it does not exist
			err = fmt.Errorf("looking at the repository of %s: %w", dir, failed)
		}
		if failed != nil && ctx.Err() == context.DeadlineExceeded {
			err = fmt.Errorf("%w; if it is a large one, run git commit-graph write --reachable in it", err)
		}
		return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' || r == '\r' })
	}
	shallow = said("rev-parse", "--is-shallow-repository")
	if Said(err, "not a git repository (or any") {
		return "", "", nil
	}
	for _, line := range said("config", "--get-regexp", `^remote\..*\.url$`) {
		name, url, _ := strings.Cut(line, " ")
		if remote == "" || name == "remote.origin.url" {
			remote = url
		}
	}
	if len(shallow) == 1 && shallow[0] == "false" && len(said("rev-parse", "--verify", "--quiet", "HEAD")) > 0 {
		if roots := said("rev-list", "--max-parents=0", "HEAD"); len(roots) > 0 {
			root = roots[len(roots)-1] // the oldest
		}
	}
	if err != nil {
		return "", "", err
	}
	return remote, root, nil
}
