//go:build faults

package postgres

import (
	"os"
	"strings"
)

// The simulation shows that each check is needed: with this variable the program leaves one out.
// "lease" renews a lease that has expired in the same term, "term" writes whatever the owner's term is,
// "version" replaces versions that it does not know, and "reread" takes a write for not made if its
// reply was lost.
func init() {
	with := map[string][]string{
		"lease":   {"term = $2 AND expires > clock_timestamp()", "$2::bigint > 0"},
		"term":    {"AND term = $9", "AND $9::bigint IS NOT NULL"},
		"version": {"AND version = $10", "AND $10::bigint IS NOT NULL"},
		"reread":  {"SELECT version, transition FROM", "SELECT version, '' FROM"},
	}[os.Getenv("DEEPWORK_FAULT_BREAK")]
	weaken = strings.NewReplacer(with...).Replace
}
