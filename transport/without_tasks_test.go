package transport

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/transport/web"
)

// Clients that don't declare the extension for tasks get, byte for byte, what they got before there were tasks: the golden
// file was made by the server of then. Only ids, times and folders are written anew.
func TestRepliesWithoutTasks(t *testing.T) {
	t.Parallel()
	f := newFactory(standardWorkflows...)
	var all strings.Builder
	for _, version := range []string{"2026-07-28", stateful} {
		root := t.TempDir()
		write(t, root, textJob(`quality_criteria: {Good: "Is it good?"}`, "text"))
		write(t, root, map[string]string{
			"review.sh": "while ! test -e go.txt; do sleep 0.05; done\nprintf '%s\\n' '{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"{\\\"passed\\\": true, \\\"feedback\\\": \\\"ok\\\"}\"}'\n",
			".deepwork/config.yml": "version: \"1.0\"\nquality_gate: {reviewer_executor: CLAUDE_LIKE, reply_within: 100ms}\nexecutors: {CLAUDE_LIKE: {command: [sh, review.sh, claude]}}\n" +
				"workflow_tools:\n  reply_within: 100ms\n  status_interval: 20ms\n  sources: [{name: factory, url: " + f.overWeb(t) + "}]\n",
		})
		s := serverOn(t, root, nil)
		s.connected(t)
		h := overHTTP(t, s, web.Options{})
		c := httpClient(t, "")
		headers, meta := []string{"Mcp-Protocol-Version: " + version, "Mcp-Method: tools/call"}, newestMeta(`{}`)
		if version == stateful {
			headers, meta = []string{open(t, c, h), ""}, `"_meta":{}`
		}
		call := func(name, args string) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s}}`, name, args, meta)
			r := send(t, c, "POST", h.URL(), body, append(headers, "Mcp-Name: "+name)...)
			fmt.Fprintf(&all, "%s %s %s\n%d %s\n\n", version, name, args, r.status, strings.TrimSpace(r.body))
			return r.body
		}
		id := regexp.MustCompile(`"session_id":"([0-9a-f]{8})"`).FindStringSubmatch(call("start_workflow", `{"goal":"g","job_name":"checked","workflow_name":"full"}`))[1]
		args := fmt.Sprintf(`{"outputs":{"text":"text.txt"},"session_id":%q,"step_id":"text"}`, id)
		call("finished_step", args)
		call("get_step", fmt.Sprintf(`{"session_id":%q}`, id))
		call("finished_step", fmt.Sprintf(`{"outputs":{"other":"text.txt"},"session_id":%q,"step_id":"text"}`, id))
		call("hang", `{}`)
		write(t, root, map[string]string{"go.txt": ""})
		kept := all.String()
		waitFor(t, "the review has passed", func() bool {
			all.Reset()
			all.WriteString(kept)
			return strings.Contains(call("finished_step", args), `next_step`)
		})
		text := all.String()
		all.Reset()
		for _, r := range [][2]string{
			{regexp.QuoteMeta(root), "/project"}, {id, "0a1b2c3d"}, {`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`, "<uuid>"},
			{`20\d\d-\d\d-\d\dT[0-9:.]+Z`, "<time>"}, {`full-20\d\d-\d\d-\d\d`, "full-<day>"}, {`begun \d+s ago`, "begun 0s ago"},
			{`event: message\n(id: \S+\n)?`, ""}, {`(\\?"source_execution_id\\?":).*?,`, "$1<id>,"}, {`(\\?"progress\\?":)(null|\{.*?\})`, "$1<progress>"},
		} {
			text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
		}
		all.WriteString(text)
	}
	testkit.Golden(t, "testdata/without_tasks.txt", all.String(), *update)
}
