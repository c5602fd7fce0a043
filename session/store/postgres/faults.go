//go:build faults

package postgres

import (
	"os"
	"strings"
)

// The simulation shows that each check is needed: with this variable the program leaves one out. With
// "revision" it replaces revisions that it does not know; with "request" a repeated call begins a second
// session. Checks that are not in SQL are in package record.
func init() {
	with := map[string][]string{
		"revision": {"AND w.revision = before", "AND before IS NOT NULL"},
		"request":  {"IF NOT FOUND AND (before < 0 OR", "IF false AND (before < 0 OR"},
	}[os.Getenv("DEEPWORK_FAULT_BREAK")]
	weaken = strings.NewReplacer(with...).Replace
}
