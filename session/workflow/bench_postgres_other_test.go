//go:build !linux

package workflow

import (
	"testing"

	"deepwork/session/store/postgres/pgtest"
)

// apart does nothing here.
func apart(*testing.B, *pgtest.Server) bool { return false }
