//go:build !unix

package worktree

// syncDir does nothing: a folder cannot be synced here.
func syncDir(string) error { return nil }
