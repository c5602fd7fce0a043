package attempt

import "strings"

// onlyFiles are the tests that are about files, with the reason. The others run with PostgreSQL, too.
var onlyFiles = map[string]string{
	"TestFullDisk":                   "the disk of the board's file is full",
	"TestInspectBoard":               "it changes the rows of SQLite",
	"TestInspectChangesNothing":      "it compares the files of a board",
	"TestBoardOfAWorkspaceElsewhere": "it changes the rows of SQLite",
	"TestEndedWithoutServer":         "it sets the clock of SQLite",
	"TestDamagedBoard":               "the file of the database is damaged",
}

func init() {
	for name := range strings.FieldsSeq(anyStore) {
		onlyFiles[name] = "it is about git, agents, their records, or arguments, and what it stores is tested by package storetest"
	}
}

const anyStore = `
	TestBudgetOfCosts TestBudgetOfUnknownCosts TestOvershootOfBudgets
	TestClaimedWhileTheConfigIsBad TestCrashesAreRecoveredInEachFolder TestFindEndsWithItsContext TestOutcomes TestProjectsShareAFolderOfWorktrees
	TestCommentsOfARunningAgent TestCommentsThatAreRefused TestLinesOfADiff
	TestOutsideOfAWorkspace TestWithoutGit TestLockedBoardIsToldAsOne TestAnEmptyDiffSaysWhy TestFollowUpWithoutWorkspace TestIgnore
	TestInspectWorktrees TestNoProgramOfARepositoryRuns
	TestLogsThatAreLinks TestPreparedFolderOfWorktrees TestSetupOfABranchIsNotTheApprovedOne TestStateOfAWorkspaceIsRemoved
	TestLedgerOfARunWithTwoExecutors TestLimitsAreRead TestLimitsAreWaitedForEverLonger TestTheEndOfTheOutput
	TestMergeOfAnAttemptThatRuns TestMergeThatTheSecondRepoRefuses TestPushAfterEachExecution
	TestEarlierExecutionsStayVisible TestMessageWithoutAnEnd TestMessagesByPage TestOutputAndCostOfAgents TestOutputOfAWaitingExecution
	TestNotify TestFoldersOfWorktrees
	TestFollowUpAfterAFailedStart TestFollowUpWithoutAConversation TestHasConversation TestHistoryIsBounded
	TestRecordsRemoved TestWrongArguments
	TestListExecutors TestMessageThatBeginsLikeAnOption TestOwnStatusIsKept TestPromptAsArgument TestSetupFails TestSeveralRepos TestTail
	TestLeadOfATaskIsChecked TestRunInPlaceHasNothingToMerge TestTailOfARun
	TestArgumentsAreFlat TestRepliesHaveSchemas TestSetupIsNotRunTwiceAtOnce
	TestRecordsBehindALink TestStopBehindLinks
	TestDependenciesCountForTheBoundOfAList TestReq004_EveryFieldIsDescribed TestRootBecomesARepository`
