package state

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"deepwork/actor/testkit"
)

// Many servers that need the user's token at once have the same one.
func TestTokenIsMadeOnce(t *testing.T) {
	root, _ := newProject(t)
	testkit.FailsWith(t, testkit.Get(find(t, root).Token(false)).Err(), ErrMissing, "before")
	got := make([]string, 20)
	var all sync.WaitGroup
	for i := range got {
		f := find(t, root)
		all.Go(func() {
			var err error
			if got[i], err = f.Token(true); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	shown, err := find(t, root).Token(false)
	for _, token := range got {
		testkit.True(t, token == shown && err == nil && len(token) == 43, "%q and %q, %v", token, shown, err)
	}
	path := filepath.Join(find(t, root).Dir, tokenFile)
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
		t.Errorf("%v %v", fi.Mode(), err)
	}
	if os.PathSeparator == '/' {
		testkit.Must(t, os.Chmod(path, 0o644))
		if token, err := find(t, root).Token(true); err == nil || token != "" {
			t.Errorf("a token that others can read is used: %q", token)
		}
	}
}
