//go:build !unix

package worktree

// isNotDir: here such a path is one that does not exist.
func isNotDir(error) bool { return false }
