package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"deepwork/actor/testkit"
)

// Every event of a run fits the published schema, whatever becomes of the run.
func TestRunEventsFitTheirSchema(t *testing.T) {
	t.Parallel()
	published := testkit.Get(exec.CommandContext(t.Context(), "deepwork", "schema", "run").Output()).Must(t)
	var schema jsonschema.Schema
	must(t, json.Unmarshal(published, &schema))
	resolved := testkit.Get(schema.Resolve(nil)).Must(t)
	testkit.Need(t, resolved.Validate(map[string]any{"event": "step_started", "at": "2026-01-01T00:00:00Z", "run_id": "x", "state": "running"}) != nil, "the schema takes a step without an id")
	step := "step_started step_ended "
	for name, c := range map[string]struct {
		plan   string
		args   []string
		code   int
		events string
		shows  string // in the row of an agent in deepwork run status
	}{
		"complete": {"c say I work on c\nc finish", nil, 0, "run_started " + step + step + step + "run_ended", "I work on c"},
		"stopped":  {"b say no\nb exit 1", nil, 1, "run_started " + step + step + "run_ended", "exit code 1"},
		"limited":  {"a warn usage limit reached, try again in 2 hours\na exit 1", []string{"--max-time", "4s"}, 3, "run_started " + step + "step_waiting run_waiting run_ended", "provider's limit is over at"},
		"paused":   {"", []string{"--max-unknown", "0"}, 3, "run_started run_ended", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRunProject(t, "run: {retries: 0}\n", runJob("NAME", "a, b, c", "a", "b", "c"))
			p.plan(c.plan)
			r := p.begin(c.args...)
			events := r.exits(c.code)
			for line := range strings.Lines(r.out.String()) {
				var event map[string]any
				must(t, json.Unmarshal([]byte(line), &event))
				testkit.Equal(t, resolved.Validate(event), nil, "%s", strings.TrimSpace(line))
			}
			var names []string
			for _, e := range events {
				names = append(names, e.Event)
			}
			got := strings.Join(names, " ")
			testkit.True(t, got == c.events, "the events are %s\n%s%s", got, &r.out, &r.err)
			testkit.Equal(t, slices.ContainsFunc(events, func(e runEvent) bool { return e.Until != nil }), (name == "limited"), "a limit is in the events")
			status := p.start("status", "latest")
			status.exits(0)
			if c.shows != "" && !slices.ContainsFunc(strings.Split(status.out.String(), "\n"), func(row string) bool { return strings.Contains(row, " STEPPER ") && strings.Contains(row, c.shows) }) {
				t.Errorf("the status has no %q:\n%s", c.shows, &status.out)
			}
		})
	}
}
