package merge

import (
	"deepwork/session/attempt"
	"deepwork/session/board"
)

// DiffArgs are the arguments of get_attempt_diff.
type DiffArgs struct {
	board.Target
	Paths    []string `json:"paths" arg:"Files or folders. Default: all" max:"200" each:"4096"`
	MaxBytes *int     `json:"max_bytes" arg:"Default: 100000" min:"1" max:"1000000"`
	Text     *bool    `json:"text" arg:"Show binary files as text" unlisted:"true"`
	Stat     bool     `json:"-"` // instead of the diff, what git diff --numstat -z prints, if the attempt is here
}

// The limits of get_attempt_diff.
const (
	DefaultDiff = 100_000   // bytes
	MaxDiff     = 1_000_000 // bytes
	MaxPaths    = 200
)

// BranchArgs are the arguments of rebase_attempt and abort_merge.
type BranchArgs struct {
	board.Target
	RepoID *string `json:"repo_id" arg:"UUID. Default: all"`
}

// MergeArgs are the arguments of merge_attempt.
type MergeArgs struct {
	board.Target
	RepoID  *string `json:"repo_id" arg:"UUID. Default: all"`
	Way     *string `json:"way" arg:"merge, squash or rebase. Default: merge" enum:"merge,squash,rebase"`
	Message *string `json:"message" arg:"Text of the commit" max:"100000"`

	// The documentation, and the errors that these help with, name the others.

	Commit   *bool `json:"commit" arg:"First commit all that the worktree has" unlisted:"true"`
	Force    *bool `json:"force" arg:"Merge files with conflict markers" unlisted:"true"`
	KeepOpen *bool `json:"keep_open" arg:"Do not set the task done" unlisted:"true"`
}

// TakeArgs are the arguments of Take, Untake and Conclude.
type TakeArgs struct {
	board.Target
	RepoID string `json:"repo_id" arg:"UUID"`
	File   string `json:"file" arg:"Relative to the worktree"`
	Side   string `json:"side" arg:"ours (of the attempt) or theirs (of the target)" enum:"ours,theirs"`
}

// PushArgs are the arguments of push_attempt.
type PushArgs struct {
	board.Target
	RepoID *string `json:"repo_id" arg:"UUID. Default: all"`
	Remote *string `json:"remote" arg:"Default: origin"`
	Force  *bool   `json:"force" arg:"Replace it unless others pushed. Default: false"`
}

// TargetArgs are the arguments of change_target.
type TargetArgs struct {
	board.Target
	TargetBranch string  `json:"target_branch" arg:"An existing branch"`
	RepoID       *string `json:"repo_id" arg:"UUID. Default: all"`
}

// DiffReply answers get_attempt_diff.
type DiffReply struct {
	AttemptID string             `json:"attempt_id" jsonschema:"UUID of the attempt"`
	Diffs     []attempt.RepoDiff `json:"diffs" jsonschema:"the changes, one entry per repository"`
	Truncated bool               `json:"truncated" jsonschema:"whether a part was left out"`
	Notice    *string            `json:"notice" jsonschema:"a hint, if any"`
}
