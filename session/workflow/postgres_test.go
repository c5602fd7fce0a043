package workflow

import (
	"testing"

	"deepwork/session/store/postgres/pgtest"
)

// onlyFiles are the tests that are not run on PostgreSQL, and why.
var onlyFiles = map[string]string{
	"TestAcknowledgedTransitionsSurviveKills": "its servers use the file of the database; cmd/deepwork and cmd/proof kill those on PostgreSQL",
	"TestAFullDiskRefusesAndMovesNothing":     "fills the disk",
}

func TestOnPostgres(t *testing.T) { pgtest.Again(t, onlyFiles) }
