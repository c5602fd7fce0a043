package task

import (
	"errors"
	"time"
)

const (
	// MaxComments is how many comments on an attempt's diff wait for their sending at once.
	MaxComments = 100
	// MaxComment is the longest text of a comment in characters.
	MaxComment = 5000
)

var (
	// ErrComments refuses more comments than MaxComments.
	ErrComments = errors.New("too many comments")
	// ErrSent refuses to send comments of which some were sent or removed in the meantime.
	ErrSent = errors.New("some of the comments were sent or removed in the meantime")
	// ErrQueued refuses to replace a queued follow-up that has no comments by one that has.
	ErrQueued = errors.New("another follow-up is queued")
)

// The sides of a Comment.
const (
	NewSide = "new" // the file as it is in the worktree
	OldSide = "old" // the file before the attempt
)

// A Comment is a remark on a line of an attempt's diff that was not sent to its agent yet.
type Comment struct {
	ID        string
	AttemptID string
	RepoID    string
	File      string // relative to the worktree, with slashes
	Line      int    // of that side, from 1
	Side      string
	Quote     string // the line as it was
	Text      string
	Queued    bool   // it is in the follow-up that is queued
	Identity  string // who made it
	CreatedAt time.Time
}
