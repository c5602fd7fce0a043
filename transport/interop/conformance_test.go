//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/attempt/transcript"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A check is what the suite wrote of one of its checks.
type check struct {
	ID     string `json:"id"`
	Status string `json:"status"` // SUCCESS, INFO, WARNING, FAILURE or SKIPPED
	Says   string `json:"errorMessage"`
}

func (c check) passed() bool { return c.Status == "SUCCESS" || c.Status == "INFO" }

// wireValid is the check that every message fits MCP's own schema. The suite makes it in each scenario that sends
// messages, so those which do not apply have to pass this one.
const wireValid = "wire-schema-valid"

func suite(t *testing.T, args ...string) []string {
	return append([]string{node(t),
		filepath.Join(packages(t), "node_modules", "@modelcontextprotocol", "conformance", "dist", "index.js")},
		args...)
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
	testkit.Need(t, len(all) != 0, "the suite lists no scenarios for servers")
	return all
}

// play runs scenarios, and returns what they found. The suite's exit code is about all scenarios, so it is
// not looked at.
func play(t *testing.T, url string, args ...string) (map[string][]check, error) {
	out := t.TempDir()
	said, err := output(t, suite(t,
		append([]string{"server", "--url", url, "--timeout", "20000", "--output-dir", out}, args...)...)...)
	entries, _ := os.ReadDir(out)
	if len(entries) == 0 {
		return nil, fmt.Errorf("the suite ended with %w and found nothing\n%s", err, said)
	}

	found := map[string][]check{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(out, e.Name(), "checks.json"))
		if err != nil {
			return nil, err
		}

		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		name := stamp.ReplaceAllString(strings.TrimPrefix(e.Name(), "server-"), "")
		found[name] = append(found[name], checks...)
	}

	return found, nil
}

// playTasks runs the scenarios of the extension for tasks, which are on no version's list. Most of the time
// they wait, so all run at once.
func playTasks(t *testing.T, url string, all map[string][]string) (found map[string][]check, err error) {
	found = map[string][]check{}
	var mu sync.Mutex
	var playing sync.WaitGroup
	for name := range applying {
		if slices.Contains(all[name], extension) {
			playing.Go(func() {
				one, failed := play(t, url, "--scenario", name, "--force", "--spec-version", "2026-07-28",
					"--timeout", "110000")
				mu.Lock()
				defer mu.Unlock()
				maps.Copy(found, one)
				err = errors.Join(err, failed)
			})
		}
	}
	playing.Wait()
	return found, err
}

// extension stands for a version where the suite lists the scenarios of extensions.
const extension = "extension"

// MCP's conformance suite, on a server with a source that has some of the tools that the suite looks for. A scenario
// that is in no list of ours is new: it has to be looked at, and put into one.
func TestConformance(t *testing.T) {
	all := scenarios(t)
	ours := slices.Collect(maps.Keys(applying))
	for _, names := range others {
		ours = append(ours, strings.Fields(names)...)
	}
	slices.Sort(ours)
	testkit.Same(t, ours, slices.Sorted(maps.Keys(all)),
		"each scenario must be in one of the lists, applying or others")

	p := newProject(t)
	p.configure(t, fmt.Sprintf("workflow_tools:\n  sources:\n    - {name: everything, command: [%q, %q]}\n", node(t),
		filepath.Join(packages(t), "everything.mjs")))
	url := p.serve(t, "http")
	connect(t, &mcp.StreamableClientTransport{Endpoint: url}).until(t, "test_trigger_tool_change")

	tasks := sync.OnceValues(func() (map[string][]check, error) { return playTasks(t, url, all) })
	var early sync.WaitGroup
	early.Go(func() { tasks() })
	t.Cleanup(early.Wait)
	played, needed := map[string]int{}, map[string]bool{}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28", extension} {
		find := tasks
		if version != extension {
			find = func() (map[string][]check, error) {
				return play(t, url, "--suite", "all", "--spec-version", version)
			}
		}
		found := testkit.Get(find()).Must(t)
		for name, versions := range all {
			if version == extension && applying[name] == 0 {
				continue
			}
			testkit.True(t, !slices.Contains(versions, version) || found[name] != nil,
				"scenario %s of version %s did not run", name, version)
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
		testkit.Equal(t, played[name], versions, "versions of scenario %s", name)
	}
	for id := range beyond {
		testkit.True(t, needed[id], "check %s is passed, or is made no more: take it out of beyond", id)
	}

	p.whole(t)
}

// applying are the scenarios of the suite that a server like this one has to pass in every protocol version that the
// suite has them for, and how many versions those are; every check in them has to be passed but for those of beyond.
var applying = map[string]int{
	"server-initialize":           2,
	"server-session-lifecycle":    2,
	"server-stateless":            1,
	"ping":                        2,
	"tools-list":                  3,
	"prompts-list":                3,
	"resources-list":              3,
	"json-schema-2020-12":         2,
	"server-sse-multiple-streams": 2,
	"dns-rebinding-protection":    2,
	"caching":                     1,
	"http-header-validation":      1,
	"input-required-result-unsupported-methods": 1,
	"input-required-result-validate-input":      1,
	"tasks-lifecycle":                           1,
	"tasks-capability-negotiation":              1,
	"tasks-wire-fields":                         1,
	"tasks-request-state-removal":               1,
	"tasks-request-headers":                     1,
	"tasks-dispatch-and-envelope":               1,
}

// beyond are checks of applying scenarios that ask for what the server does not
// have, and why. Each must be needed: one that is passed after all is to be taken out.
var beyond = map[string]string{
	"sep-2575-server-rejects-undeclared-capability": "a client that cannot ask its user gets a reply without a " +
		"question: no call needs a capability",
	"sep-2575-missing-capability-http-400": "the same",
	"sep-2575-http-server-no-independent-requests-on-stream": "the tool that would ask the user is one that only a " +
		"server made for the suite has",
	"sep-2575-server-no-log-without-loglevel": "there is no logging: what happened is in the " +
		"server's log",
	"sep-2575-server-sends-prompts-list-changed-on-subscription": "there is no tool that changes the prompts, as a " +
		"server made for the suite has",
	"json-schema-2020-12-$defs": "schemas of sources are listed in the form that model APIs accept: references are " +
		"written out",
	"sep-2106-composition-keywords-preserved": "the same: what is composed at the top is one object",
	"sep-2106-anchor-keyword-preserved":       "the same",
	"sep-2663-tasks-get-status-failed": "its tool has to panic; here the result of a call that fails is completed, " +
		"with isError",
	"tasks-result-type-complete-on-non-task-responses": "its tool asks the user: what other systems ask is never " +
		"passed on to a client",
	"tasks-headers-tolerate-mcp-method-on-tools-call": "its tool answers with a plain text: what a workflow of " +
		"another system returns is in the JSON of its execution",
}

// others are the scenarios that do not apply, by the reason.
var others = map[string]string{
	"it calls a tool that only a server made for the " +
		"suite has": `tools-call-simple-text tools-call-image tools-call-audio tools-call-embedded-resource
		tools-call-mixed-content tools-call-with-logging tools-call-error tools-call-with-progress ` +
		`tools-call-sampling tools-call-elicitation`,
	"it gets a prompt that only a server made for the " +
		"suite has": `completion-complete prompts-get-simple prompts-get-with-args prompts-get-embedded-resource
		prompts-get-with-image input-required-result-non-tool-request`,
	"it reads a resource that only a server made for the " +
		"suite has": `resources-read-text resources-read-binary resources-templates-read resources-subscribe
		resources-unsubscribe sep-2164-resource-not-found`,
	"it is of an extension that the server does not declare: skills": "sep-2640-skills-directory " +
		"sep-2640-skills-enumeration sep-2640-skills-manifest",
	"the server asks about steps that a person reviews only, and the scenario calls a tool of its own " +
		"that asks": `elicitation-sep1034-defaults
		elicitation-sep1330-enums tasks-mrtr-input tasks-mrtr-composition input-required-result-basic-elicitation ` +
		`input-required-result-basic-sampling
		input-required-result-basic-list-roots input-required-result-request-state ` +
		`input-required-result-multiple-input-requests
		input-required-result-multi-round input-required-result-missing-input-response input-required-result-result-type
		input-required-result-tampered-state input-required-result-capability-check ` +
		`input-required-result-ignore-extra-params`,
	"there is no logging, and none is declared":                                              "logging-set-level",
	"streams are not resumed: a lost call is called again, and gets the reply that was kept": "server-sse-polling",
	"no tool asks for headers; where the schema of a source does, that is " +
		"taken out": "http-custom-header-server-validation",
	"there are no notifications of tasks: clients ask for their state":    "tasks-status-notifications",
	"no tool needs the extension: without it every call is answered, too": "tasks-required-task-error",
}

// What Codex prints as JSON is read as messages and usage, also of a follow-up in the same conversation,
// which has used only its own. (Of Claude Code: TestClaudeCodeWorksOnATask.)
func TestTranscriptsOfCodingAgents(t *testing.T) {
	p := careProject(t)
	home := t.TempDir()
	a := codingAgents[1]
	m := startModel(t, a.api, move{tool: "get_workflows", args: map[string]any{}}, move{text: "It is done."},
		move{text: "It is still done."})
	argv, env := a.setup(t, home, m.URL, server{command: p.command(t)})
	run := func(flags ...string) (said []transcript.Message, u *transcript.Usage) {
		cmd := exec.CommandContext(t.Context(), argv[0], slices.Concat(argv[1:], flags)...)
		cmd.Dir = p.root
		cmd.WaitDelay = time.Second
		cmd.Stdin = strings.NewReader("Take care")
		cmd.Env = append(os.Environ(), append(env, "HOME="+home)...)
		out, err := cmd.Output()
		testkit.Need(t, err == nil, "%v: %v\n%s", cmd.Args, err, out)

		var r transcript.Reader
		for line := range bytes.Lines(out) {
			r.Line(line, func(m transcript.Message) {
				testkit.True(t, m.Kind != transcript.Output, "not understood: %s", m.Text)
				said = append(said, m)
			})
		}
		return said, r.Usage()
	}
	said, first := run("--json", "-")
	call := slices.IndexFunc(said, func(m transcript.Message) bool {
		return m.Kind == transcript.Call && strings.Contains(m.Tool, "get_workflows")
	})
	answered := slices.ContainsFunc(said, func(m transcript.Message) bool {
		return call >= 0 && m.Kind == transcript.Result && m.CallID == said[call].CallID &&
			strings.Contains(m.Text, "care") && !m.Failed
	})
	last := said[len(said)-1]
	testkit.Need(t, answered, "%+v", said)
	testkit.Equal(t, last.Kind, transcript.Said)
	testkit.Equal(t, last.Text, "It is done.")
	said, again := run("--json", "resume", "--last", "-")
	testkit.Equal(t, said[len(said)-1].Text, "It is still done.")

	var before map[string]transcript.Tokens
	for i, u := range []*transcript.Usage{first, again} {
		n := transcript.CostOf(u, before, nil, "").Tokens.Output
		before = u.Models
		testkit.Equal(t, n, int64(2-i), "run %d has used %+v", i, u)
		testkit.True(t, !u.Partial, "run %d has used %+v", i, u)
		testkit.True(t, u.USD == nil, "run %d has used %+v", i, u)
	}
}
