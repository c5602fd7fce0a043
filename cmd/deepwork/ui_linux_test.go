package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// At a terminal with a screen the URL is opened, by a program that Ctrl-C does not reach.
func TestUIOpensABrowser(t *testing.T) {
	dir := t.TempDir()
	opened := filepath.Join(dir, "opened")
	program := "#!/bin/sh\ncut -d' ' -f5 /proc/$$/stat >" + opened + ".new\necho \"$1\" >>" + opened + ".new\nmv " + opened + ".new " + opened + "\n"
	must(t, os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(program), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("DISPLAY", ":0")
	script := `deepwork ui --path "$1" >/dev/tty 2>&1 & ui=$!
		tries=0; while [ ! -f "$2" ] && [ $tries -lt 600 ]; do sleep 0.1; tries=$((tries+1)); done
		cut -d" " -f5 /proc/$ui/stat; kill -TERM $ui; wait $ui; echo ended $?`
	stdout, screen, err := typing(t, "", "sh", "-c", script, "sh", t.TempDir(), opened)
	must(t, err)
	given, err := os.ReadFile(opened)
	must(t, err)
	group, url, _ := strings.Cut(strings.TrimSpace(string(given)), "\n")
	if !strings.HasPrefix(url, "http://127.0.0.1:") || !strings.Contains(screen, url) {
		t.Errorf("opened %q, and printed\n%s", url, screen)
	}
	own, end, _ := strings.Cut(strings.TrimSpace(stdout), "\n")
	if end != "ended 0" || strings.TrimSpace(own) == strings.TrimSpace(group) {
		t.Errorf("its group is %q, that of the browser %q; %s", own, group, end)
	}
}

func TestHasScreen(t *testing.T) {
	for name, want := range map[string]bool{"DISPLAY": true, "WAYLAND_DISPLAY": true, "TERM": false} {
		if got := hasScreen(func(n string) string { return map[string]string{name: "x"}[n] }); got != want {
			t.Errorf("with %s: %v", name, got)
		}
	}
}
