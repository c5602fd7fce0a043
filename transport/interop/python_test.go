//go:build interop

package interop

import (
	"path/filepath"
	"slices"
	"testing"

	"deepwork/actor/testkit"
)

// The client of the official Python SDK, in the version of requirements.txt: with
// the handshake, and without a connection, as the newest protocol version has it.
func TestClientOfThePythonSDK(t *testing.T) {
	script, err := filepath.Abs("client.py")
	testkit.Must(t, err)
	for _, c := range []struct{ name, over, mode, protocol string }{
		{"stdio", "stdio", "legacy", "2025-11-25"},
		{"stdio in the newest version", "stdio", "auto", "2026-07-28"},
		{"sse", "sse", "legacy", "2025-11-25"},
		{"http", "http", "legacy", "2025-11-25"},
		{"http in the newest version", "http", "auto", "2026-07-28"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t)
			told := p.instructions(t)
			told.Over, told.Mode = c.over, c.mode
			if c.over == "stdio" {
				told.Command = p.command(t)
			} else {
				token, file := newToken(t)
				told.URL, told.Token = p.serve(t, c.over, "--token-file", file), token
			}
			saw := walk(t, told, python(t), script)
			judge(t, told, saw, append(slices.Clip(everyWalk), want{"server", "protocol", `"` + c.protocol + `"`})...)
			p.whole(t)
		})
	}
}
