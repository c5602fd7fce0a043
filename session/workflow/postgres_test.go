package workflow

import (
	"testing"

	"deepwork/session/store/postgres/pgtest"
)

// onlyFiles are the tests that are not run on PostgreSQL, and why.
var onlyFiles = map[string]string{
	"TestAcknowledgedTransitionsSurviveKills": "kills many servers, each of which a lease would outlive by 6 s; see cmd/deepwork and cmd/proof",
	"TestAFullDiskRefusesAndMovesNothing":     "fills the disk",
}

func TestOnPostgres(t *testing.T) { pgtest.Again(t, onlyFiles) }
