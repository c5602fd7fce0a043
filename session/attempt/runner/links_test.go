package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A link in the place of a file or folder of a run is not followed: nothing is read,
// written, emptied or run where it leads to.
func TestLinksAreNotFollowed(t *testing.T) {
	for _, c := range []struct {
		name    string
		at      string // of the link, in the bench's folder
		dir     bool   // it leads to a folder
		started bool   // the agent runs regardless
	}{
		{"log folder", "log", true, false},
		{"segment", "log/00000000000000000000.jsonl", false, false},
		{"run folder", "runs/a", true, false},
		{"spec", "runs/a/spec.json", false, true}, // it is replaced
		{"spare", "runs/a/exit.spare", false, true},
		{"started", "runs/a/started.json", false, false},
		{"exit", "runs/a/exit.json", false, false},
		{"stop", "runs/a/stop.0", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			victim := b.path("victim")
			must(t, os.MkdirAll(victim, 0o700))
			must(t, os.WriteFile(filepath.Join(victim, "profile"), []byte("mine\n"), 0o600))
			target := victim
			if !c.dir {
				target = filepath.Join(victim, "profile")
			}
			must(t, os.MkdirAll(filepath.Dir(b.path(c.at)), 0o700))
			if err := os.Symlink(target, b.path(c.at)); err != nil {
				t.Skip("no symlinks here:", err)
			}
			s := b.spec("runs/a", "echo")
			p, err := testRunner().Start(t.Context(), s)
			if p != nil {
				e, werr := p.Wait(t.Context())
				err = werr
				if e.NotStarted != "" {
					err = errors.New(e.NotStarted)
				}
			}
			if (err == nil) != c.started {
				t.Errorf("%v", err)
			}
			if entries, _, err := Tail(t.Context(), s.Log, nil, 10, 0); strings.HasPrefix(c.at, "log") && err == nil {
				t.Errorf("the log is %+v", entries)
			}
			if err := Note(s.Log, "text"); strings.HasPrefix(c.at, "log") && err == nil {
				t.Error("a note was written")
			}
			text, err := os.ReadFile(filepath.Join(victim, "profile"))
			list, _ := os.ReadDir(victim)
			if string(text) != "mine\n" || err != nil || len(list) != 1 {
				t.Errorf("outside there is %v now, and %q (%v)", list, text, err)
			}
			must(t, os.RemoveAll(b.path(c.at)))
		})
	}
}

// A request to stop leaves alone what a link in its place leads to.
func TestStopThroughALink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "profile")
	must(t, os.WriteFile(victim, []byte("mine\n"), 0o600))
	if err := os.Symlink(victim, filepath.Join(dir, "stop.1000")); err != nil {
		t.Skip("no symlinks here:", err)
	}
	must(t, requestStop(dir, time.Second))
	if text, err := os.ReadFile(victim); string(text) != "mine\n" || err != nil {
		t.Errorf("it has %q now: %v", text, err)
	}
}

// What a stored Spec says is not what is run, and a log elsewhere is not written.
func TestAStoredSpecIsNotRun(t *testing.T) {
	b := newBench(t)
	s := b.spec("runs/a", "echo")
	must(t, os.MkdirAll(s.Dir, 0o700))
	planted := s
	planted.Command, planted.Log = []string{"sh", "-c", "touch " + b.path("planted")}, b.path("elsewhere/log")
	must(t, writeJSON(s.Dir, specFile, &planted))
	if e := b.wait(b.start(s)); e.Code != 0 || e.NotStarted != "" {
		t.Errorf("%+v", e)
	}
	if exists(b.dir, "planted") || exists(b.dir, "elsewhere") {
		t.Error("what was stored was run")
	}
	planted.Dir = b.path("runs/b")
	if e := b.wait(b.start(planted)); !strings.Contains(e.NotStarted, "opening the log") || exists(b.dir, "planted") {
		t.Errorf("%+v", e)
	}
}
