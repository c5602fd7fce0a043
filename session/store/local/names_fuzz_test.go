package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"deepwork/actor/presence"
	"deepwork/actor/testkit"
)

// Of a file's name it is told which server left it, or nothing: what is removed when
// a server is dead is that server's and nobody else's.
func FuzzLeftBy(f *testing.F) {
	const server = "0123456789abcdef"
	for _, s := range []string{"server_" + server + ".lock", "write_" + server + "_7.tmp", "write_" + server + "_.tmp", "write_" + server + "_7_8.tmp", "server_.lock", "session_00000001.json", "write_" + strings.ToUpper(server) + "_1.tmp"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, ok := writtenBy(name)
		if !ok {
			got, ok = presence.LockOf(name)
		}
		if !ok {
			return
		}
		if len(got) != len(server) || !isHex(got, 16) || !strings.Contains(name, got) {
			t.Errorf("%q was left by %q", name, got)
		}
		if rest, lock := strings.CutPrefix(name, "server_"); lock && rest != got+".lock" {
			t.Errorf("%q was left by %q", name, got)
		}
	})
}

// Whatever files are in the folder, a list of the sessions has those alone that are
// named as sessions are, each by an id that Read takes.
func FuzzListedNames(f *testing.F) {
	for _, s := range []string{"session_00000001.json", "session_0000001.json", "session_0000000g.json", "session_00000001.json.damaged_1", "session_00000001", ".session_00000001.json", "damaged_00000001.json"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name != filepath.Base(name) || len(name) > 200 || strings.ContainsAny(name, "/\\\x00") || name == "." || name == ".." {
			t.Skip()
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Skip() // no name here
		}
		s, err := Open(folder(dir), Options{ReadOnly: true})
		testkit.Must(t, err)
		defer s.Close(ctx)
		for info, err := range s.List(ctx) {
			id := info.ID
			testkit.Must(t, err)
			if len(id) != 8 || !isHex(id, 8) || name != "session_"+id+".json" {
				t.Errorf("%q is listed as the session %q", name, id)
			}
		}
	})
}
