package main

import (
	"testing"
	"time"

	"deepwork/actor/testkit"
)

// A day until which runs are listed is one of them; a time is exact.
func TestRunsUntilADayIncludeIt(t *testing.T) {
	for given, want := range map[string]string{
		"2026-11-30":           "2026-12-01T00:00:00Z",
		"2026-11-30T00:00:00Z": "2026-11-30T00:00:00Z",
		"2026-11-30T08:00:00Z": "2026-11-30T08:00:00Z",
	} {
		flag := (&app{}).runListCommand().Flags().Lookup("until")
		testkit.Must(t, flag.Value.Set(given))
		testkit.Equal(t, flag.Value.(lastDay).at.Format(time.RFC3339), want, "--until %s", given)
	}
	testkit.Fails(t, (&app{}).runListCommand().Flags().Set("until", "yesterday"), "yesterday")
}
