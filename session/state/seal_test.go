package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"deepwork/actor/durable"
)

// verified returns "" for a signature that is the folder's, and else why it is not.
func verified(t *testing.T, f *Folder, name, content, signature string) string {
	t.Helper()
	err := f.Verify(name, []byte(content), signature)
	if foreign, ok := errors.AsType[*durable.ForeignError](err); ok {
		return foreign.Reason
	}
	must(t, err)
	return ""
}

func TestOnlyWhatWasSealedHereIsOurs(t *testing.T) {
	root, base := newProject(t)
	seal, err := find(t, root).Sign("a.json", []byte("content"))
	must(t, err)
	neighbour := root + " 2"
	must(t, os.Mkdir(neighbour, 0o700))
	must(t, find(t, neighbour).Make())
	other := find(t, neighbour)
	plain := "sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		name, content, signature, want string
		by                             *Folder
	}{
		{"a.json", "content", seal, "", find(t, root)},
		{"a.json", "other", seal, "altered", find(t, root)},
		{"b.json", "content", seal, "altered", find(t, root)},
		{"a.json", "content", seal[:len(seal)-1] + "x", "no seal", find(t, root)},
		{"a.json", "content", strings.ToUpper(seal), "no seal", find(t, root)},
		{"a.json", "content", "", "no seal", find(t, root)},
		{"a.json", "content", plain, "plain checksum", find(t, root)},
		{"a.json", "content", seal, "another project", other},
	} {
		if got := verified(t, c.by, c.name, c.content, c.signature); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
			t.Errorf("%s in %s with %q under %.30q: %q, want %q", c.name, c.by.Root, c.content, c.signature, got, c.want)
		}
	}

	t.Setenv(Env, base+"-elsewhere")
	away := find(t, root)
	if got := verified(t, away, "a.json", "content", seal); !strings.Contains(got, "nothing was sealed") {
		t.Errorf("without a key: %q", got)
	}
	if _, err := os.Lstat(base + "-elsewhere"); err == nil {
		t.Error("reading made a folder")
	}
	if _, err := away.Sign("x", nil); err != nil {
		t.Fatal(err)
	}
	if got := verified(t, away, "a.json", "content", seal); !strings.Contains(got, "another installation") {
		t.Errorf("with another key: %q", got)
	}
}

func TestAKeyThatCannotBeReadIsNoVerdict(t *testing.T) {
	root, base := newProject(t)
	seal, err := find(t, root).Sign("a", nil)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(base, keyFile), []byte("short"), 0o600))
	err = find(t, root).Verify("a", nil, seal)
	if _, foreign := errors.AsType[*durable.ForeignError](err); err == nil || foreign {
		t.Errorf("verified with a broken key: %v", err)
	}
}

func TestManySealAtOnce(t *testing.T) {
	root, _ := newProject(t)
	var wg sync.WaitGroup
	var seals [20]string
	for n := range seals {
		f := find(t, root)
		wg.Go(func() {
			var err error
			if seals[n], err = f.Sign("a", []byte("b")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, seal := range seals {
		if seal != seals[0] || verified(t, find(t, root), "a", "b", seal) != "" {
			t.Errorf("sealed %s and %s", seal, seals[0])
		}
	}
}
