//go:build faults

package postgres

import (
	"os"
	"strings"
)

// The simulation shows that each check is needed: with this variable the program leaves one out.
// "lease" renews a lease that has expired in the same term, and "revision" replaces revisions that it does
// not know.
func init() {
	with := map[string][]string{
		"lease":    {"term = $2 AND expires > clock_timestamp()", "$2::bigint > 0"},
		"revision": {"AND w.revision = before", "AND before IS NOT NULL"},
	}[os.Getenv("DEEPWORK_FAULT_BREAK")]
	weaken = strings.NewReplacer(with...).Replace
}
