package attempt

import "strings"

// onlyFiles are the tests that are about files, with the reason. The others run with PostgreSQL, too.
var onlyFiles = map[string]string{
	"TestFullDisk":                   "the disk of the board's file is full",
	"TestInspectBoard":               "it changes the rows of SQLite",
	"TestInspectChangesNothing":      "it compares the files of a board",
	"TestBoardOfAWorkspaceElsewhere": "it changes the rows of SQLite",
	"TestEndedWithoutServer":         "it sets the clock of SQLite",
}

func init() {
	for name := range strings.FieldsSeq(anyStore) {
		onlyFiles[name] = "it is about git, agents, their records, or arguments, and what it stores is tested by package storetest"
	}
}

const anyStore = `
	TestARemovalThatIsNotAnswered TestAnAgentEndsAfterItBegan TestAnAgentIsItsMaker TestAnExecutorThatIsAService TestArgumentsAreFlat
	TestAttemptFails TestAutoStartRefused TestBudgetOfCosts TestBudgetOfUnknownCosts TestClaimedWhileTheConfigIsBad
	TestCrashesAreRecoveredInEachFolder TestDeleteIsFinishedByRepetition TestDeleteRunningTask TestDeleteTask TestEarlierExecutionsStayVisible
	TestFailedBeforeItsWorkspace TestFindEndsWithItsContext TestFoldersOfWorktrees TestFollowUpAfterAFailedStart
	TestFollowUpWithoutAConversation TestFollowUpWithoutWorkspace TestHasConversation TestHistoryIsBounded TestIgnore TestInspectWell
	TestInspectWorktrees TestInterrupted TestLeadOfATaskIsChecked TestLeaderPanics TestLimitsAreRead TestLimitsAreWaitedForEverLonger
	TestListExecutors TestLockedBoardIsToldAsOne TestLogsThatAreLinks TestMessageThatBeginsLikeAnOption TestMessageWithoutAnEnd
	TestMessagesByPage TestNeedsAttention TestNoProgramOfARepositoryRuns TestNothingIsSaidOfOthersAttempts TestNotify TestOutcomes
	TestOutputAndCostOfAgents TestOutputOfAWaitingExecution TestOvershootOfBudgets TestOwnStatusIsKept TestPreparedFolderOfWorktrees
	TestProjectsShareAFolderOfWorktrees TestPromptAsArgument TestRecordsBehindALink TestRecordsRemoved TestReq004_EveryFieldIsDescribed
	TestResumeOfARunThatNeverBegan TestResumeOfARunWithoutAWorkspace TestSetupFails TestSetupOfABranchIsNotTheApprovedOne TestSeveralRepos
	TestStartGivesWayToRemoval TestStartOnce TestStartingAgentsNeedsTheRight TestStateOfAWorkspaceIsRemoved TestStop TestStopBehindLinks
	TestStopWaiting TestStopWhileStarting TestTail TestTailOfARun TestTasksOfAnAgentAreItsMakers TestTheEndOfTheOutput TestWithoutGit
	TestWrongArguments`
