//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

// A check is what the suite wrote of one of its checks.
type check struct {
	ID     string `json:"id"`
	Status string `json:"status"` // SUCCESS, INFO, WARNING, FAILURE or SKIPPED
	Says   string `json:"errorMessage"`
}

func (c check) passed() bool { return c.Status == "SUCCESS" || c.Status == "INFO" }

// wireValid is the check that every message fits MCP's own schema. The suite makes
// it in each scenario that sends messages, so those which do not apply have to pass
// this one.
const wireValid = "wire-schema-valid"

// suite is the command line of MCP's conformance suite.
func suite(t *testing.T, args ...string) []string {
	return append([]string{node(t), filepath.Join(packages(t), "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")}, args...)
}

var (
	serverScenario = regexp.MustCompile(`^  - (\S+) \[(\S+)\]$`)
	stamp          = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[-\d]+Z$`)
)

// scenarios asks the suite for its scenarios for servers, and the versions of each.
func scenarios(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	ofServers := false
	lines := bufio.NewScanner(bytes.NewReader(runClient(t, suite(t, "list")...)))
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), ":") {
			ofServers = strings.HasPrefix(lines.Text(), "Server scenarios")
		} else if m := serverScenario.FindStringSubmatch(lines.Text()); ofServers && m != nil {
			all[m[1]] = strings.Split(m[2], ",")
		}
	}
	if len(all) == 0 {
		t.Fatal("the suite lists no scenarios for servers")
	}
	return all
}

// play runs the scenarios that a version has, and returns what they found. The
// suite's exit code is about all scenarios, so it is not looked at.
func play(t *testing.T, url, version string) map[string][]check {
	t.Helper()
	out := t.TempDir()
	args := []string{"server", "--url", url, "--suite", "all", "--spec-version", version, "--timeout", "20000", "--output-dir", out}
	said, err := output(t, suite(t, args...)...)
	entries, _ := os.ReadDir(out)
	if len(entries) == 0 {
		t.Fatalf("the suite ended with %v and found nothing\n%s", err, said)
	}
	found := map[string][]check{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, e.Name(), "checks.json"))
		testkit.Must(t, err)
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatalf("%s: %v", e.Name(), err)
		}
		name := stamp.ReplaceAllString(strings.TrimPrefix(e.Name(), "server-"), "")
		found[name] = append(found[name], checks...)
	}
	return found
}

// MCP's conformance suite, on a server with a source that has some of the tools
// that the suite looks for. A scenario that is in no list of ours is new: it has to
// be looked at, and put into one.
func TestConformance(t *testing.T) {
	all := scenarios(t)
	for name := range all {
		_, applies := applying[name]
		_, does := others[name]
		if applies == does {
			t.Errorf("scenario %s must be in one of the lists, applying or others", name)
		}
	}
	for name := range applying {
		if all[name] == nil {
			t.Errorf("the suite has no scenario %s", name)
		}
	}
	for name := range others {
		if all[name] == nil {
			t.Errorf("the suite has no scenario %s", name)
		}
	}
	p := newProject(t)
	p.configure(t, fmt.Sprintf("workflow_tools:\n  sources:\n    - {name: everything, command: [%q, %q]}\n", node(t), filepath.Join(packages(t), "everything.mjs")))
	url := p.serve(t, "http")
	waitForTool(t, url, "test_trigger_tool_change")

	played, needed := map[string]int{}, map[string]bool{}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		found := play(t, url, version)
		for name, versions := range all {
			if slices.Contains(versions, version) && found[name] == nil {
				t.Errorf("scenario %s of version %s did not run", name, version)
			}
		}
		for name, checks := range found {
			t.Run(version+"/"+name, func(t *testing.T) {
				_, applies := applying[name]
				played[name]++
				for _, c := range checks {
					switch _, excused := beyond[c.ID]; {
					case c.passed():
					case applies && excused:
						needed[c.ID] = true
					case applies || c.ID == wireValid:
						t.Errorf("%s: %s: %s", c.ID, c.Status, c.Says)
					}
				}
			})
		}
	}
	for name, versions := range applying {
		if played[name] != versions {
			t.Errorf("scenario %s ran in %d versions, not %d", name, played[name], versions)
		}
	}
	for id := range beyond {
		if !needed[id] {
			t.Errorf("check %s is passed, or is made no more: take it out of beyond", id)
		}
	}
	p.whole(t)
}
