package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestPrices(t *testing.T) {
	u := parsedUser(t, "prices: {CODEX: {input: 1.25, output: 10, cache_read: 0.125}, free: {input: 0, output: 0}}")
	want := map[string]Price{"CODEX": {1.25, 0.125, 1.25, 10}, "free": {}}
	if got := u.Over(Default()).Prices; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if c := Default(); c.Prices != nil {
		t.Errorf("%+v", c.Prices)
	}
	for source, fault := range map[string]string{
		"{m: {input: 1}}":                          "has no output",
		"{m: {output: 1}}":                         "has no input",
		"{m: }":                                    "has no input",
		"{m: {input: -1, output: 1}}":              "is a number (-1); expected the USD per million tokens, from 0 to 1000000",
		"{m: {input: .inf, output: 1}}":            "expected the USD per million tokens",
		"{m: {input: .nan, output: 1}}":            "expected the USD per million tokens",
		"{m: {input: dear, output: 1}}":            "expected the USD per million tokens",
		"{m: {input: 1, output: 1, reasoning: 2}}": "reasoning",
		"[m]": "a mapping of the names of models to their prices",
		"{m: {input: 1, output: 1, cache_read: 10000000}}": "expected the USD per million tokens",
	} {
		if _, faults := ParseUser("config.yml", []byte("prices: "+source)); faults == nil || !strings.Contains(faults.Error(), fault) {
			t.Errorf("%s: %v, want %q", source, faults, fault)
		}
	}
	if _, faults := Parse("config.yml", []byte("prices: {m: {input: 1, output: 1}}")); faults == nil || !strings.Contains(faults.Error(), "does not belong into a project") {
		t.Error(faults)
	}
}

// The command of notify is the user's own: a project's config may not name one.
func TestNotifyIsTheUsers(t *testing.T) {
	for source, want := range map[string][]string{
		"notify: notify-send --app 'deep work'": {"notify-send", "--app", "deep work"},
		"notify: [sh, -c, 'cat >> x']":          {"sh", "-c", "cat >> x"},
		"notify:":                               nil,
	} {
		u, faults := ParseUser("config.yml", []byte(source))
		if faults != nil || !slices.Equal(u.Over(Default()).Notify, want) {
			t.Errorf("%s: %+v, %v", source, u, faults)
		}
	}
	if _, faults := ParseUser("config.yml", []byte("notify: a | b")); faults == nil || !strings.Contains(faults.Error(), "no shell runs the command") {
		t.Error(faults)
	}
	if _, faults := Parse("config.yml", []byte("notify: [sh, -c, 'true']")); faults == nil || !strings.Contains(faults.Error(), "does not belong into a project") {
		t.Error(faults)
	}
}
