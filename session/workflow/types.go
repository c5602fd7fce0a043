package workflow

import "deepwork/session/workflow/machine"

// The types of the state machine that callers of an Engine meet. See package
// machine for what they mean.
type (
	State         = machine.State
	SessionStatus = machine.SessionStatus
	StepProgress  = machine.StepProgress
	Withdrawal    = machine.Withdrawal
	Attempt       = machine.Attempt
	Verdict       = machine.Verdict
	FileHash      = machine.FileHash
	Outputs       = machine.Outputs
	OutputValue   = machine.OutputValue

	WorkflowsReply  = machine.WorkflowsReply
	JobInfo         = machine.JobInfo
	WorkflowInfo    = machine.WorkflowInfo
	JobLoadError    = machine.JobLoadError
	StackEntry      = machine.StackEntry
	StepInfo        = machine.StepInfo
	ExpectedOutput  = machine.ExpectedOutput
	ReviewInfo      = machine.ReviewInfo
	CriterionResult = machine.CriterionResult
	FailedReview    = machine.FailedReview
	StartReply      = machine.StartReply
	FinishReply     = machine.FinishReply
	AbortReply      = machine.AbortReply
	Member          = machine.Member
	StepReply       = machine.StepReply
	GoToReply       = machine.GoToReply

	OrderedMap[V any] = machine.OrderedMap[V]
)

// The constants of those types, and the names of the tools.
const (
	Active    = machine.Active
	Completed = machine.Completed
	Aborted   = machine.Aborted

	NeedsWork        = machine.NeedsWork
	NextStep         = machine.NextStep
	WorkflowComplete = machine.WorkflowComplete

	AttemptOpen = machine.AttemptOpen
	AttemptVoid = machine.AttemptVoid

	ToolStart  = machine.ToolStart
	ToolFinish = machine.ToolFinish
	ToolAbort  = machine.ToolAbort
	ToolGoTo   = machine.ToolGoTo
)
