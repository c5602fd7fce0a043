//go:build unix

package workflow

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/session/workflow/machine"
)

// exporting returns a project with a session of many steps.
func exporting(t *testing.T) (p *project, srv *server, c *Conn, id string) {
	p = newProject(t)
	var steps []testStep
	var ids []string
	for _, name := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		steps, ids = append(steps, testStep{id: name}), append(ids, name)
	}
	p.job("alpha", steps, map[string]string{"main": "[" + strings.Join(ids, ", ") + "]"})
	srv = p.open()
	c = srv.Connect("local")
	return p, srv, c, p.start(c, "alpha", "main").BeginStep.SessionID
}

// Of two processes that export a session at the same time, the one with the higher revision stays.
func TestTheNewerExportStays(t *testing.T) {
	p, srv, c, id := exporting(t)
	was, err := srv.records.read(ctx, id, nil)
	testkit.Must(t, err)
	for range mostSpares + 2 {
		p.finish(c, `{"outputs":{}}`)
	}
	for range 3 {
		srv.exports.write(was.row, was.state)
		if s := p.record(id); s.Revision != mostSpares+2 {
			t.Errorf("the export has revision %d, want %d", s.Revision, mostSpares+2)
		}
	}
}

// Whatever is in the place of an export or of a spare, nothing else is written to, and no call waits.
func TestExportsOverLinksAndPipes(t *testing.T) {
	trap := filepath.Join(t.TempDir(), "precious")
	testkit.Must(t, os.WriteFile(trap, []byte("precious"), 0o600))
	for name, plant := range map[string]func(path string) error{
		"hard link": func(path string) error { return os.Link(trap, path) },
		"link":      func(path string) error { return os.Symlink(trap, path) },
		"pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder":    func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			p, srv, c, id := exporting(t)
			for n := range 2 * mostSpares {
				p.finish(c, `{"outputs":{}}`)
				if s := p.record(id); s.Revision != int64(n+1) {
					t.Fatalf("the export has revision %d, want %d", s.Revision, n+1)
				}
				all, err := filepath.Glob(filepath.Join(p.state().Tmp(), sparePrefix+"*"))
				testkit.Must(t, err)
				if n%2 == 0 {
					all = append(all, filepath.Join(p.state().Tmp(), exportName(id)))
				}
				for _, path := range all {
					testkit.Must(t, os.RemoveAll(path))
					testkit.Must(t, plant(path))
				}
			}
			if text, err := os.ReadFile(trap); err != nil || string(text) != "precious" {
				t.Errorf("the other file has %q, %v", text, err)
			}
			if s, err := srv.Read(ctx, id); err != nil || s.Status != machine.Active {
				t.Errorf("%s, %v", toJSON(t, s), err)
			}
		})
	}
}

// The inspection does not wait for the other end of a pipe in the place of an export, and reads no link.
func TestInspectionOfPipes(t *testing.T) {
	p, srv, _, id := exporting(t)
	path := filepath.Join(p.state().Tmp(), exportName(id))
	testkit.Must(t, os.Remove(path))
	testkit.Must(t, syscall.Mkfifo(path, 0o600))
	r, err := srv.records.read(ctx, id, nil)
	testkit.Must(t, err)
	r.state.UpdatedAt = time.Now().Add(-time.Minute)
	i := &inspection{engine: srv.Engine}
	if i.export(r); len(i.behind) != 1 {
		t.Errorf("differing exports %q", i.behind)
	}
}
