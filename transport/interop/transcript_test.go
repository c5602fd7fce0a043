//go:build interop

package interop

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/session/attempt/transcript"
)

// What Claude Code and Codex print as JSON is read as messages and usage, also of a follow-up in the
// same conversation, which has used only its own.
func TestTranscriptsOfCodingAgents(t *testing.T) {
	for i, flags := range []struct{ first, again []string }{
		{[]string{"--output-format", "stream-json", "--verbose"}, []string{"--output-format", "stream-json", "--verbose", "--continue"}},
		{[]string{"--json", "-"}, []string{"--json", "resume", "--last", "-"}},
	} {
		a := codingAgents[i]
		t.Run(a.name, func(t *testing.T) {
			p := careProject(t)
			home := t.TempDir()
			m := startModel(t, a.api, move{tool: "get_workflows", args: map[string]any{}}, move{text: "It is done."}, move{text: "It is still done."})
			argv, env := a.setup(t, home, m.URL, server{command: p.command(t)})
			run := func(flags []string) (said []transcript.Message, u *transcript.Usage) {
				cmd := exec.CommandContext(t.Context(), argv[0], slices.Concat(argv[1:], flags)...)
				cmd.Dir, cmd.WaitDelay, cmd.Stdin = p.root, time.Second, strings.NewReader("Take care")
				cmd.Env = append(os.Environ(), append(env, "HOME="+home)...)
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
				}
				var r transcript.Reader
				for line := range bytes.Lines(out) {
					r.Line(line, func(m transcript.Message) {
						if m.Kind == transcript.Output {
							t.Errorf("not understood: %s", m.Text)
						}
						said = append(said, m)
					})
				}
				return said, r.Usage()
			}
			said, first := run(flags.first)
			var called *transcript.Message
			for _, m := range said {
				switch {
				case m.Kind == transcript.Call && strings.Contains(m.Tool, "get_workflows"):
					called = &m
				case m.Kind == transcript.Result && called != nil && m.CallID == called.CallID && strings.Contains(m.Text, "care"):
					called.Failed = m.Failed
				}
			}
			if last := said[len(said)-1]; called == nil || called.Failed || last.Kind != transcript.Said || last.Text != "It is done." {
				t.Errorf("%+v", said)
			}
			said, again := run(flags.again)
			if last := said[len(said)-1]; last.Text != "It is still done." {
				t.Errorf("%+v", said)
			}
			var before map[string]transcript.Tokens
			for i, u := range []*transcript.Usage{first, again} {
				n := transcript.CostOf(u, before, nil, "").Tokens.Output
				before = u.Models
				if want := int64(2 - i); n != want || u.Partial || (u.USD == nil) == (a.name == "Claude Code") {
					t.Errorf("run %d has used %+v", i, u)
				}
			}
		})
	}
}
