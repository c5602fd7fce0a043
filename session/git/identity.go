package git

import (
	"context"
	"strings"
	"time"
)

// Identity returns what identifies the repository of a folder on every machine: the URL of its remote
// (origin, else the first), as configured, and the hash of its first commit. Either is "" if it does
// not exist or cannot be found in 5 s, both outside of a repository. A shallow clone has no first commit.
func Identity(ctx context.Context, dir string) (remote, root string) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	said := func(args ...string) []string {
		out, err := Output(ctx, Command{Dir: dir, Args: args})
		if err != nil {
			return nil // there is none
		}
		return strings.FieldsFunc(out, func(r rune) bool { return r == '\n' || r == '\r' })
	}
	for _, line := range said("config", "--get-regexp", `^remote\..*\.url$`) {
		name, url, _ := strings.Cut(line, " ")
		if remote == "" || name == "remote.origin.url" {
			remote = url
		}
	}
	if shallow := said("rev-parse", "--is-shallow-repository"); len(shallow) == 1 && shallow[0] == "false" {
		if roots := said("rev-list", "--max-parents=0", "HEAD"); len(roots) > 0 {
			root = roots[len(roots)-1] // the oldest
		}
	}
	return remote, root
}
