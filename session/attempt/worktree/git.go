package worktree

import (
	"context"
	"strings"

	"deepwork/session/git"
)

// listLimit bounds what a listing of files may be, in bytes.
const listLimit = 256 << 20

// git runs git and returns what it wrote to standard output.
func (k *Keeper) git(ctx context.Context, c git.Command) (string, error) {
	out, _, err := k.gitBoth(ctx, c)
	return out, err
}

// line runs git and returns its output without the line break at its end.
func (k *Keeper) line(ctx context.Context, c git.Command) (string, error) {
	out, err := k.git(ctx, c)
	return strings.TrimRight(out, "\r\n"), err
}

// gitBoth runs git and returns its standard output and what it warned of.
func (k *Keeper) gitBoth(ctx context.Context, c git.Command) (out, warnings string, err error) {
	c.Waiting = func() { k.at("lock held") }
	return git.Run(ctx, c)
}
