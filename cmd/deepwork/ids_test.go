package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/config"
	"deepwork/session"
)

// A command that an agent of the board runs has no more rights than the agent.
func TestAnAgentHasNoRightsOnTheCommandLine(t *testing.T) {
	env := map[string]string{}
	getenv := func(name string) string { return env[name] }
	if who := callerOf(getenv); !who.Owner || !who.Has(session.RightAgents|session.RightMerge) {
		t.Errorf("the user is %+v", who)
	}
	env[config.AttemptEnv], env[config.BoardEnv] = "bce3f921-e215-48ca-8f29-0dd54aedc1ab", filepath.Join(t.TempDir(), "board.db")
	if who := callerOf(getenv); who.Owner || who.Rights != 0 {
		t.Errorf("an agent is %+v", who)
	}
}

func TestChoose(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := []candidate{{"ab12", "one", at, nil}, {"ab34", "two\nlines", at.Add(100 * time.Millisecond), nil}, {"cd56", "three", at.Add(90 * time.Millisecond), nil}, {id: "ef78", about: "of an unknown time"}}
	for given, want := range map[string]string{"ab1": "ab12", "AB34": "ab34", "c": "cd56", "ef78": "ef78", latest: "ab34"} {
		if got, err := taskIDs.choose(given, all); got.id != want || err != nil {
			t.Errorf("%s: %v %v, want %s", given, got, err, want)
		}
	}
	for given, want := range map[string]string{
		"ab": `2 tasks have an id that begins with "ab"; give more of it: ab12 (one), ab34 (two lines)`,
		"f":  `there is no task whose id begins with "f"; 'deepwork board tasks' lists them`,
	} {
		if _, err := taskIDs.choose(given, all); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
	}
	if _, err := taskIDs.choose(latest, nil); err == nil || err.Error() != "there is no task yet, so latest names none" {
		t.Error(err)
	}
	var many []candidate
	for i := range 300 {
		many = append(many, candidate{id: fmt.Sprintf("a%03d", i), about: "x"})
	}
	if _, err := taskIDs.choose("a", many); err == nil || len(err.Error()) > 1000 || !strings.Contains(err.Error(), "a009 (x), ") {
		t.Error(err)
	}
}
