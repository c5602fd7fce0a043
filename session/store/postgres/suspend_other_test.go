//go:build !unix

package postgres

import "testing"

func suspend(t *testing.T, _ int) { t.Skip("processes cannot be suspended here") }
func resume(*testing.T, int)      {}
