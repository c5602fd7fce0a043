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
	TestARemovalThatIsNotAnswered TestAgentOutlivesItsBoard TestAnAgentEndsAfterItBegan TestAnAgentIsItsMaker TestAnExecutorThatIsAService
	TestArgumentsAreFlat TestAttemptFails TestAutoStartRefused TestBlockedTask TestBudgetOfCosts TestBudgetOfUnknownCosts
	TestClaimedWhileTheConfigIsBad TestCostsOfTwoExecutors TestCrashesAreRecoveredInEachFolder TestDeleteIsFinishedByRepetition
	TestDeleteRunningTask TestDeleteTask TestEarlierExecutionsStayVisible TestFailedBeforeItsWorkspace TestFindEndsWithItsContext
	TestFoldersOfWorktrees TestFollowUpAfterAFailedStart TestFollowUpWithoutAConversation TestFollowUpWithoutWorkspace TestHasConversation
	TestHistoryIsBounded TestIgnore TestInspectWell TestInspectWorktrees TestInterrupted TestLeadOfATaskIsChecked TestLeaderPanics
	TestLimitsAreRead TestLimitsAreWaitedForEverLonger TestListExecutors TestLockedBoardIsToldAsOne TestLogsThatAreLinks
	TestMessageThatBeginsLikeAnOption TestMessageWithoutAnEnd TestMessagesByPage TestNeedsAttention TestNoProgramOfARepositoryRuns
	TestNothingIsSaidOfOthersAttempts TestNotify TestOutcomes TestOutputAndCostOfAgents TestOutputOfAWaitingExecution TestOvershootOfBudgets
	TestOwnStatusIsKept TestPreparedFolderOfWorktrees TestProjectsShareAFolderOfWorktrees TestPromptAsArgument TestRecordsBehindALink
	TestRecordsRemoved TestReq004_EveryFieldIsDescribed TestReq004_FollowUpSend TestReq004_FollowUpWithoutSession
	TestResumeOfARunThatNeverBegan TestResumeOfARunWithoutAWorkspace TestRunCrashes TestSetupFails TestSetupOfABranchIsNotTheApprovedOne
	TestSeveralRepos TestStartGivesWayToRemoval TestStartOnce TestStartingAgentsNeedsTheRight TestStateOfAWorkspaceIsRemoved TestStop
	TestStopBehindLinks TestStopWaiting TestStopWhileStarting TestTail TestTailOfARun TestTaskWaitsForItsWorkflow
	TestTasksOfAnAgentAreItsMakers TestTheEndOfTheOutput TestWithoutGit TestWrongArguments`
