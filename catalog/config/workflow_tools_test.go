package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// The example, every key of it.
func TestReq003_4_1_WorkflowTools(t *testing.T) {
	c := parsed(t, `
workflow_tools:
  enabled: false
  include: ["data-*", "report-*"]
  exclude: ["*-internal"]
  prefix: "x_"
  refresh_interval: 0
  execution_timeout: 7m
  reply_within: 10
  status_interval: 3s
  max_concurrent_executions: 11
  keep_tools_for: 0
  retry_attempts: 0
  expose_jobs: true
  sources:
    - name: reports
      command: [node, reports-server.js]
      env: {REGION: eu, PORT: 8080, DEBUG: true}
      execution_timeout: 1h
    - name: shop
      url: http://127.0.0.1:9001/mcp
      headers: {Authorization: "Bearer ${SHOP_TOKEN}"}
      list_tool: l
      execute_tool: e
      status_tool: s
      cancel_tool: c
    - {name: line, command: node 'a b.js', execution_timeout: 0}
`)
	hour, none := time.Hour, time.Duration(0)
	want := WorkflowTools{
		Include: []string{"data-*", "report-*"}, Exclude: []string{"*-internal"}, Prefix: "x_",
		ExecutionTimeout: new(7 * time.Minute), ReplyWithin: new(10 * time.Second), StatusInterval: 3 * time.Second,
		MaxConcurrent: 11, ExposeJobs: true,
		Sources: []WorkflowSource{
			{
				Name: "reports", Command: []string{"node", "reports-server.js"}, ExecutionTimeout: &hour,
				Env:      map[string]string{"REGION": "eu", "PORT": "8080", "DEBUG": "true"},
				ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
				StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
			},
			{
				Name: "shop", URL: "http://127.0.0.1:9001/mcp", Headers: map[string]string{"Authorization": "Bearer ${SHOP_TOKEN}"},
				ListTool: "l", ExecuteTool: "e", StatusTool: "s", CancelTool: "c",
			},
			{
				Name: "line", Command: []string{"node", "a b.js"}, ExecutionTimeout: &none,
				ListTool: "workflows-list-tool", ExecuteTool: "workflows-execute-tool",
				StatusTool: "workflows-status-tool", CancelTool: "workflows-cancel-tool",
			},
		},
	}
	if !reflect.DeepEqual(c.WorkflowTools, want) {
		t.Errorf("%+v\nwant %+v", c.WorkflowTools, want)
	}
}

func TestWorkflowToolsKeysWithoutValuesAreTheDefaults(t *testing.T) {
	c, faults := Parse("config.yml", []byte(`workflow_tools: {enabled: , include: , prefix: , refresh_interval: , max_concurrent_executions: ~, sources: null}`))
	if faults != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%+v %v", c, faults)
	}
}

func TestWorkflowToolsFaults(t *testing.T) {
	for source, want := range map[string]string{
		"enabled: 1":                                          `1:27: workflow_tools.enabled: is a number (1); expected true or false`,
		"include: [3]":                                        `workflow_tools.include[0]: is a number`,
		`exclude: [ok, "a[b"]`:                                `workflow_tools.exclude[1]: "a[b" is not a pattern`,
		`exclude: [""]`:                                       `workflow_tools.exclude[0]: "" is not a pattern`,
		"prefix: a b":                                         `workflow_tools.prefix: is a text ("a b"); expected at most 32 letters`,
		"prefix: " + strings.Repeat("a", 33):                  `at most 32 letters`,
		"refresh_interval: 0.01":                              `is 10ms; expected 0 (never) or at least 100ms`,
		"status_interval: 0":                                  `workflow_tools.status_interval: is 0s`,
		"max_concurrent_executions: 0":                        `a whole number from 1`,
		"keep_tools_for: -1":                                  `workflow_tools.keep_tools_for: is -1s`,
		"sources: [x]":                                        `workflow_tools.sources[0]: is a text ("x"); expected a mapping`,
		"sources: [{command: c}]":                             `1:28: workflow_tools.sources[0]: has no name`,
		"sources: [{name: a b, command: c}]":                  `"a b" is not a source's name`,
		"sources: [{name: a}]":                                `has neither command nor url`,
		"sources: [{name: a, command: []}]":                   `has neither command nor url`,
		"sources: [{name: a, command: c, url: 'http://h/'}]":  `has both command and url`,
		"sources: [{name: a, url: 'http://h/', env: {A: b}}]": `has env, which is for a command`,
		"sources: [{name: a, command: c, headers: {A: b}}]":   `has headers, which are for a url`,
		"sources: [{name: a, command: c}, {name: a, url: 'http://h/'}]":  `workflow_tools.sources[1]: a second source of the name "a"; the first is workflow_tools.sources[0]`,
		"sources: [{name: a, url: 'ftp://h/'}]":                          `it must begin with http:// or https://`,
		"sources: [{name: a, url: '/mcp'}]":                              `it must begin with http:// or https://`,
		"sources: [{name: a, url: 'http://u:p@h/'}]":                     `it has a user or password in it`,
		"sources: [{name: a, command: \"c 'x\"}]":                        `is not a command line`,
		"sources: [{name: a, command: c, env: [A]}]":                     `a mapping of names to texts`,
		"sources: [{name: a, command: c, env: {A=B: c}}]":                `is not the name of an environment variable`,
		"sources: [{name: a, command: c, env: {A: [b]}}]":                `workflow_tools.sources[0].env.A: is a list`,
		"sources: [{name: a, url: 'http://h', headers: {A B: c}}]":       `is not the name of an HTTP header`,
		"sources: [{name: a, url: 'http://h', headers: {A: \"b\\nc\"}}]": `has a line break or NUL byte in it`,
		"sources: [{name: a, command: c, list_tool: ' '}]":               `the name of a tool of the source`,
		"sources: [{name: a, command: c, execution_timeout: -3}]":        `execution_timeout: is -3s`,
	} {
		c, faults := Parse("config.yml", []byte("workflow_tools: {"+source+"}"))
		if c != nil || len(faults) != 1 || !strings.Contains(faults.Error(), want) {
			t.Errorf("%s: %v, want %q", source, faults, want)
		}
	}
}

func TestAPasswordInAURLIsNotTold(t *testing.T) {
	for _, url := range []string{"http://u:s3cret@h/", "http://u:s3cret@h:port/", "ftp://u:s3cret@h"} {
		_, faults := Parse("config.yml", []byte("workflow_tools: {sources: [{name: a, url: '"+url+"'}]}"))
		if faults == nil || strings.Contains(faults.Error(), "s3cret") {
			t.Errorf("%s: %v", url, faults)
		}
	}
}

// The README shows the defaults, every key, and examples of sources and of a task board.
func TestReadmeExamples(t *testing.T) {
	data, err := os.ReadFile("README.md")
	must(t, err)
	block := func(kind string) string {
		_, rest, found := strings.Cut(string(data), "```yaml "+kind+"\n")
		text, _, closed := strings.Cut(rest, "```")
		if !found || !closed {
			t.Fatalf("README.md shows no %s", kind)
		}
		return text
	}
	shown := block("config")
	c, faults := Parse("config.yml", []byte(shown))
	if faults != nil || !slices.Equal(c.Toolsets, DefaultToolsets) {
		t.Fatalf("README.md shows %+v, %v", c, faults)
	}
	if c.Toolsets, c.Platforms = nil, nil; !reflect.DeepEqual(c, Default()) {
		t.Errorf("README.md shows\n%+v\nthe defaults are\n%+v", c, Default())
	}
	all := regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: )`).ReplaceAllString(shown, "$1$2")
	if c, faults = Parse("config.yml", []byte(all)); faults != nil || len(c.QualityGate.AgentReviewCommand) != 2 {
		t.Errorf("with every setting that is commented out it is %+v, %v", c, faults)
	}
	told := func(text, fault string) {
		_, faults := Parse("config.yml", []byte(fault))
		_, keys, _ := strings.Cut(faults.Error(), "with the keys ")
		for key := range strings.SplitSeq(keys, ", ") {
			if !strings.Contains(text, " "+key+":") {
				t.Errorf("README.md does not tell of %s", key)
			}
		}
	}
	told(shown, "workflow_tools: 7\n")
	example := block("sources")
	if c, faults = Parse("config.yml", []byte(example)); faults != nil || len(c.WorkflowTools.Sources) != 2 {
		t.Errorf("README.md's sources: %+v %v", c, faults)
	}
	told(example, "workflow_tools: {sources: [7]}\n")
	board := block("board")
	if c, faults = Parse("config.yml", []byte(board)); faults != nil || len(c.Executors) == 0 || len(c.Executors[0].Variants) == 0 || len(c.Projects) == 0 {
		t.Errorf("README.md's board: %+v %v", c, faults)
	}
	told(board, "executors: {A: 7}\n")
	told(board, "projects: [7]\n")
	told(board, "projects: [{name: a, repos: [7]}]\n")
}
