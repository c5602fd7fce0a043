//go:build interop

package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Claude Code accepts the plugin of a release, and its server answers.
func TestClaudeCodeConnectsToThePlugin(t *testing.T) {
	release := os.Getenv("DEEPWORK_TEST_RELEASE")
	if release == "" {
		t.Skip("DEEPWORK_TEST_RELEASE does not name the folder of a release")
	}
	plugin := filepath.Join(release, "plugin")
	home := t.TempDir()
	claude := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		program := filepath.Join(agentPackages(t), "node_modules", "@anthropic-ai", "claude-code", "cli-wrapper.cjs")
		cmd := exec.CommandContext(ctx, node(t), append([]string{program}, args...)...)
		cmd.Dir, cmd.WaitDelay = t.TempDir(), time.Second
		cmd.Env = append(os.Environ(), "HOME="+home, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DEEPWORK_STATE_DIR="+filepath.Join(home, "state"),
			"PATH="+filepath.Dir(binary(t))+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("claude %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	claude("plugin", "validate", plugin)
	if out := claude("--plugin-dir", plugin, "mcp", "list"); !strings.Contains(out, "deepwork serve --path . - ") || !strings.Contains(out, "Connected") {
		t.Errorf("claude mcp list prints\n%s", out)
	}
}
