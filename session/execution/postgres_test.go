package execution

import (
	"testing"

	"deepwork/session/store/postgres/pgtest"
)

// onlyFiles are the tests that are not run on PostgreSQL, and why. So are those in a bubble of
// synctest, whose clock is not the database's: openStore skips them.
var onlyFiles = map[string]string{
	"TestNoRunIsStartedTwiceOrForgottenThroughKills": "its servers use the file of the database; cmd/proof kills those on PostgreSQL",
	"TestWhatCannotBeRead":                           "looks into the database's file",
}

func TestOnPostgres(t *testing.T) { pgtest.Again(t, onlyFiles) }
