package workflow

import (
	"testing"

	"deepwork/session/store/postgres/pgtest"
)

// onlyFiles are the tests that are not run on PostgreSQL, and why.
var onlyFiles = map[string]string{
	"TestAForeignSessionWaitsForTheUser":                         "only files are sealed and adopted",
	"TestWhatIsNoSessionIsNotAdopted":                            "only files are adopted",
	"TestASessionInUseIsNotAdoptedBehindItsServer":               "only files are adopted",
	"TestNothingIsAdoptedBesideAnEarlierServer":                  "only files are adopted",
	"TestTheEndOfAnotherServersSessionIsSettled":                 "counts the syncs of a folder",
	"TestAcknowledgedTransitionsSurviveKills":                    "kills many servers, each of which a lease would outlive by 6 s; see cmd/deepwork and cmd/proof",
	"TestADiskThatHangsHoldsNoSession":                           "has the disk hang; package postgres has tests of a network that does",
	"TestAStartOnADiskThatHangs":                                 "has the disk hang; package postgres has tests of a network that does",
	"TestAFullDiskRefusesAndMovesNothing":                        "fills the disk",
	"TestASessionThatWasLostAndCameBackLeavesTheStackWhenItEnds": "moves a session's file away and back",
	"TestADamagedRecordIsSetAsideAndOthersGoOn":                  "damages a session's file",
	"TestResumableSessions":                                      "damages sessions' files",
	"TestARequestIsKnownToAnotherServer":                         "removes the index of request ids",
	"TestARepetitionIsKnownThoughTheClockWasSet":                 "sets the time of a session's file",
}

func TestOnPostgres(t *testing.T) { pgtest.Again(t, onlyFiles) }
