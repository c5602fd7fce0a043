package web

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

func TestNewToken(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		token, line, err := NewToken(config.Token{Name: "ci.build-1"})
		sum := sha256.Sum256([]byte(token))
		if err != nil || len(token) != 43 || seen[token] || line != "ci.build-1:"+hex.EncodeToString(sum[:]) {
			t.Fatalf("%q %q %v", token, line, err)
		}
		seen[token] = true
		all, err := parseTokens([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := identify(all, token); !ok || got.Name != "ci.build-1" {
			t.Errorf("its own token gives %+v %v", got, ok)
		}
		if _, ok := identify(all, token+"x"); ok {
			t.Error("another token is let in")
		}
	}
	for _, name := range []string{"", "a b", "a:b", strings.Repeat("a", 65), "é", "a\n"} {
		if token, _, err := NewToken(config.Token{Name: name}); err == nil || token != "" {
			t.Errorf("%q is a name", name)
		}
	}
}

func TestTokenFile(t *testing.T) {
	hash := strings.Repeat("0123456789ABCDEF", 4)
	good, err := parseTokens([]byte("# who\n\n  ann : " + hash + "  \r\nbob:" + strings.ToLower(hash)))
	if err != nil || len(good) != 2 || good[0].Name != "ann" || good[0].SHA256 != good[1].SHA256 {
		t.Errorf("%v %v", good, err)
	}
	lower := strings.ToLower(hash)
	all, err := parseTokens([]byte("ann:" + hash + "\nann:" + hash + ":web\nann: " + hash + " : : merge , agents\nann:" + hash + ":web:person\nann:" + hash + "::"))
	if want := []config.Token{{Name: "ann", SHA256: lower}, {Name: "ann", SHA256: lower, Group: "web"}, {Name: "ann", SHA256: lower, Rights: config.RightAgents | config.RightMerge}, {Name: "ann", SHA256: lower, Group: "web", Rights: config.RightPerson}, {Name: "ann", SHA256: lower}}; err != nil || !slices.Equal(all, want) {
		t.Errorf("%+v %v, want %+v", all, err, want)
	}
	for text, want := range map[string]string{
		"ann":                                   "line 1 is not name:sha256",
		"\nann:secret":                          `line 2: what follows "ann" is not the SHA-256`,
		"a b:" + hash:                           `line 1: "a b" is not a name`,
		"ann:" + hash + ":a b":                  `line 1: the group of "ann" is not`,
		"ann:" + hash + ":g:agents,secret":      `line 1: the rights of "ann" are not a comma list of agents,merge,person`,
		"ann:" + hash + ":g:agents:x":           "line 1 is not name:sha256[:group[:rights]]",
		"ann:" + hash + " # old":                "line 1: what follows",
		"ann:" + strings.Repeat("z", len(hash)): "line 1: what follows",
	} {
		_, err := parseTokens([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestFilesThatEverybodyMayWriteToAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not looked at there")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	testkit.Must(t, os.WriteFile(file, []byte("ann:"+strings.Repeat("0", 64)+"\n"), 0o600))
	if _, err := openTokenFile(file, slog.New(slog.DiscardHandler)); err != nil {
		t.Error(err)
	}
	testkit.Must(t, os.Chmod(file, 0o602))
	_, err := openTokenFile(file, slog.New(slog.DiscardHandler))
	_, keyErr := Listen(t.Context(), Backend{}, Options{TLSCert: file, TLSKey: file})
	for _, err := range []error{err, keyErr} {
		if err == nil || !strings.Contains(err.Error(), "everybody may write to it: run chmod o-w on it") || !strings.Contains(err.Error(), file) {
			t.Error(err)
		}
	}
}

// A token and its line say the same of group and rights.
func TestNewTokenWithRights(t *testing.T) {
	for _, c := range []config.Token{{Name: "a", Group: "g"}, {Name: "a", Rights: config.RightMerge}, {Name: "a", Group: "g", Rights: config.AllRights}} {
		token, line, err := NewToken(c)
		if err != nil {
			t.Fatal(err)
		}
		all, err := parseTokens([]byte(line))
		if got, ok := identify(all, token); err != nil || !ok || got.Group != c.Group || got.Rights != c.Rights {
			t.Errorf("%s: %+v %v", line, got, err)
		}
	}
}

// A file of tokens that everybody can read is refused.
func TestTokenFileThatEverybodyReads(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := errors.Join(os.WriteFile(file, []byte("ann:"+strings.Repeat("0", 64)), 0o600), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := openTokenFile(file, nil); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
}

// A file that was changed within the same tick of the clock, to the same size, is
// noticed all the same.
func TestTokenFileChangedInOneTick(t *testing.T) {
	token, line, err := NewToken(config.Token{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openTokenFile(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	_, another, err := NewToken(config.Token{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(another), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, ok := identify(f.tokens(), token); !ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the change was not noticed")
		}
		time.Sleep(time.Millisecond)
	}
}
