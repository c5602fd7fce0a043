package attempt

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"deepwork/catalog/task"
	"deepwork/session"
	"deepwork/session/state"
	"deepwork/session/store"
	"deepwork/session/store/backend"
	files "deepwork/session/store/local"
	"deepwork/session/store/postgres"
	"deepwork/session/store/postgres/pgtest"
)

// machineHere is the machine of tests with one.
var machineHere = task.Place{MachineID: "0a1b2c3d", MachineName: "here"}

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

// stores returns the stores of a server of the project, nil if the tests run with files.
func (p *project) stores() *store.Stores {
	if !pgtest.OnPostgres() {
		return nil
	}
	at := machineHere
	at.Root = p.root
	return storesIn(p.root, at)
}

// storesWith returns the stores of a server whose database is wrapped by between.
func (p *project) storesWith(between func(store.Database) store.Database) *store.Stores {
	stores := p.stores()
	if stores == nil {
		stores = files.Stores(state.Of(p.root), false, nil)
	}
	p.t.Cleanup(func() { must(p.t, stores.Close(ctx)) })
	copied := *stores
	copied.Database = between(stores.Database)
	return &copied
}

// schemaURL returns the URL of the schema with a name.
func schemaURL(name string) string {
	server, err := pgtest.Shared()
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256([]byte(name))
	return server.At("test_" + hex.EncodeToString(sum[:8]))
}

// openIn opens the schema with a name for a process at a place, the last one there.
func openIn(name string, at task.Place) *postgres.Store {
	s, err := postgres.Open(postgres.Options{URL: schemaURL(name), Project: "shop",
		Repository: postgres.Repository{Remote: "https://example.com/shop.git"}, Machine: at.MachineID, Root: at.Root})
	if err != nil {
		panic(err)
	}
	return s
}

// storesIn returns the stores of a process at a place in the schema with a name.
func storesIn(name string, at task.Place) *store.Stores {
	return backend.Of(openIn(name, at), session.NewMember(state.Of(at.Root), nil), &at, "shop")
}
