package transport

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

// What is wrong with the options is said before anything is opened.
func TestNewServerRefusesBadOptions(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, c := range map[string]struct {
		o    Options
		says []string
	}{
		"runner":   {Options{ProjectRoot: root, ExternalRunner: "gpt"}, []string{`"gpt"`, "claude"}},
		"toolset":  {Options{ProjectRoot: root, Toolsets: []string{"workflows", "tools"}}, []string{`"tools"`, "workflows, remote, board, source"}},
		"timeout":  {Options{ProjectRoot: root, QualityGateTimeout: -1}, []string{"timeout", "negative"}},
		"attempts": {Options{ProjectRoot: root, QualityGateMaxAttempts: -2}, []string{"-2", "negative"}},
		"missing":  {Options{ProjectRoot: filepath.Join(root, "none")}, []string{filepath.Join(root, "none"), "project"}},
		"a file":   {Options{ProjectRoot: file}, []string{file, "not a directory"}},
	} {
		s, err := NewServer(c.o)
		if err == nil {
			s.Close(t.Context())
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, want := range c.says {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %q", name, want, err)
			}
		}
	}
}

// A server without any tool is of no use to anyone.
func TestToolsetsWithoutTools(t *testing.T) {
	if _, err := newServer(engines{connect: new(fakes).agent}, []string{}, "", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "workflows") {
		t.Errorf("no sets: %v", err)
	}
	for _, sets := range [][]string{nil, {"workflows"}, {"board"}, {"board", "remote"}} {
		if _, err := newServer(engines{connect: new(fakes).agent}, sets, "", slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%v: %v", sets, err)
		}
	}
}

func TestAdditionalJobs(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	t.Setenv(config.JobsFoldersEnv, strings.Join([]string{" " + a + " ", "", "  ", "relative/jobs", b + string(filepath.Separator)}, string(filepath.ListSeparator)))
	if folders, relative := config.JobsFolders(); !slices.Equal(folders, []string{a, b}) || !slices.Equal(relative, []string{"relative/jobs"}) {
		t.Errorf("got %v and %v", folders, relative)
	}
}

// Seed 000, 001.1.2.
func TestReq001_1_2_RootIsResolved(t *testing.T) {
	root := testkit.Dir(t)
	t.Chdir(root)
	for _, in := range []string{"", ".", root} {
		if got, err := resolveRoot(in); err != nil || got != root {
			t.Errorf("resolveRoot(%q) = %q, %v; want %q", in, got, err, root)
		}
	}
}
