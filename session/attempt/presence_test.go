package attempt

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/presence"
)

// Whatever is removed under a running server, it looks alive again before it owns
// an execution, and what dead ones left is swept.
func TestAServerEntersTheBoard(t *testing.T) {
	if os.PathSeparator == '\\' {
		t.Skip("open files cannot be removed here")
	}
	p := newProject(t)
	s := p.open(func(o *Options) { o.Passive = true })
	other := presence.New(s.presenceDir(), slog.New(slog.DiscardHandler))
	if s.anyAlive() || other.Alive(s.presence.ID()) {
		t.Error("a server is alive before it entered")
	}
	for _, path := range []string{"", s.presence.Path(s.presence.ID()), s.presenceDir(), filepath.Dir(s.presenceDir())} {
		if path != "" {
			must(t, os.RemoveAll(path))
		}
		dead := s.presence.Path(strings.Repeat("d", 16))
		must(t, os.MkdirAll(s.presenceDir(), 0o700))
		must(t, os.WriteFile(dead, nil, 0o600))
		must(t, s.enter(ctx))
		if !other.Alive(s.presence.ID()) || !s.anyAlive() || exists(dead) {
			t.Errorf("%q was removed, and it did not enter", path)
		}
	}
	if err := os.RemoveAll(s.presenceDir()); err != nil || s.anyAlive() {
		t.Errorf("a folder that is not there: %v", err)
	}
	must(t, s.enter(ctx)) // which makes it
}
