package web

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"deepwork/actor/testkit"
	"deepwork/catalog/config"
)

func TestNewToken(t *testing.T) {
	// A token and its line say the same of name, group and rights.
	seen := map[string]bool{}
	for _, c := range slices.Repeat([]config.Token{{Name: "a", Group: "g"}, {Name: "a", Rights: config.RightMerge}, {Name: "a", Group: "g", Rights: config.AllRights}, {Name: "ci.build-1"}}, 20) {
		token, line, err := NewToken(c)
		testkit.Need(t, err == nil && len(token) == 43 && !seen[token], "%q %q %v", token, line, err)
		seen[token] = true
		sum := sha256.Sum256([]byte(token))
		c.SHA256 = hex.EncodeToString(sum[:])
		testkit.Contains(t, line, c.Name+":"+c.SHA256)
		all := testkit.Get(parseTokens([]byte(line))).Must(t)
		got, ok := identify(all, hashOf(token))
		testkit.True(t, ok && got == c, "its own token gives %+v %v", got, ok)
		_, ok = identify(all, hashOf(token+"x"))
		testkit.True(t, !ok, "another token is let in")
	}
	for _, name := range []string{"", "a b", "a:b", strings.Repeat("a", 65), "é", "a\n"} {
		token, _, err := NewToken(config.Token{Name: name})
		testkit.True(t, err != nil && token == "", "%q is a name", name)
	}
}

func TestTokenFile(t *testing.T) {
	hash := strings.Repeat("0123456789ABCDEF", 4)
	other := strings.Repeat("ab", 32)
	good, err := parseTokens([]byte("# who\n\n  ann : " + hash + "  \r\nann:" + strings.ToLower(hash) + "\nbob:" + other))
	testkit.True(t, err == nil && len(good) == 2 && good[0].Name == "ann" && good[0].SHA256 == strings.ToLower(hash), "%v %v", good, err)
	lower := strings.ToLower(hash)
	for text, want := range map[string]config.Token{
		":web":                {Group: "web"},
		" : : merge , agents": {Rights: config.RightAgents | config.RightMerge},
		":web:person":         {Group: "web", Rights: config.RightPerson},
		"::":                  {},
	} {
		want.Name, want.SHA256 = "ann", lower
		testkit.Same(t, testkit.Get(parseTokens([]byte("ann:"+hash+text))).Must(t), []config.Token{want}, "%q", text)
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
		"ann:" + hash + "\n\nbob:" + lower:      `line 3: "bob" has the sha256 of "ann" in line 1`,
		"ann:" + hash + "\nann:" + hash + ":g":  `line 2: "ann" has the sha256 of "ann" in line 1`,
	} {
		_, err := parseTokens([]byte(text))
		testkit.True(t, err != nil && strings.HasPrefix(err.Error(), want) && !strings.Contains(err.Error(), "secret") && !strings.Contains(strings.ToLower(err.Error()), lower), "%q: %v", text, err)
	}
}

// A file of tokens that everybody can read, and a secret that everybody may write to, are refused.
func TestFilesOfEverybodyAreRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions are not looked at there")
	}
	for size, want := range map[int64]string{maxTokenFile: "line 1: what follows", maxTokenFile + 1: "it is larger than"} {
		large, _ := writeToken(t, config.Token{Name: "ann"})
		testkit.Must(t, os.Truncate(large, size))
		testkit.Fails(t, testkit.Get(openTokenFile(large, slog.New(slog.DiscardHandler))).Err(), want)
	}
	file, _ := writeToken(t, config.Token{Name: "ann"})
	testkit.Works(t, testkit.Get(openTokenFile(file, slog.New(slog.DiscardHandler))).Err())
	testkit.Must(t, os.Chmod(file, 0o644))
	testkit.Fails(t, testkit.Get(openTokenFile(file, nil)).Err(), "chmod 600")
	testkit.Must(t, os.Chmod(file, 0o602))
	_, err := openTokenFile(file, slog.New(slog.DiscardHandler))
	_, keyErr := Listen(t.Context(), Backend{}, Options{TLSCert: file, TLSKey: file})
	for _, err := range []error{err, keyErr} {
		testkit.Fails(t, err, "everybody may write to it: run chmod o-w on it")
		testkit.Fails(t, err, file)
	}
}

// A file that was changed within the same tick of the clock, to the same size, is
// noticed all the same.
func TestTokenFileChangedInOneTick(t *testing.T) {
	file, token := writeToken(t, config.Token{Name: "ann"})
	f := testkit.Get(openTokenFile(file, nil)).Must(t)
	info := testkit.Get(os.Stat(file)).Must(t)
	testkit.Must(t, os.WriteFile(file, []byte("ann:"+strings.Repeat("0", 64)), 0o600))
	testkit.Must(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	testkit.Until(t, "the change to be noticed", func() bool {
		_, ok := identify(f.tokens(), hashOf(token))
		return !ok
	})
}

// A line of the token file that has a fault lets nobody in; while the file is gone, its tokens have a moment.
func TestFaultyTokenFile(t *testing.T) {
	ann, bob := strings.Repeat("0a", 32), strings.Repeat("0b", 32)
	file := filepath.Join(t.TempDir(), "tokens")
	put := func(text string) {
		t.Helper()
		testkit.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	put("ann:" + ann + "::agents\nbob:" + bob + "\n")
	f := testkit.Get(openTokenFile(file, slog.New(slog.DiscardHandler))).Must(t)
	check := func(what, want string, wantClosed bool) {
		t.Helper()
		var got []string
		all, closed := f.current()
		for _, c := range all {
			got = append(got, strings.TrimSuffix(c.Name+"/"+c.Rights.String(), "/"))
		}
		testkit.Equal(t, strings.Join(got, " "), want, "%s", what)
		testkit.Equal(t, closed, wantClosed, "%s", what)
	}
	check("good", "ann/agents bob", false)
	for _, c := range []struct {
		text, want string
		closed     bool
	}{
		{"x:y\nbob:" + bob, "bob", false},
		{"x:y\n# ann:" + ann + "\nbob:" + bob, "bob", false},
		{"x:y\nann:" + ann + "\nbob:" + bob, "ann bob", false}, // the right was removed
		{"ann:" + ann + "::agens\nbob:" + bob, "bob", false},   // mistyped
		{"eve:" + strings.Repeat("0c", 32) + "\nx\nbob:" + bob, "eve bob", false},
		{"ann:" + ann + "::agents\neve:" + ann + "\n", "ann/agents", false}, // one token of two
		{"nonsense", "", true},
	} {
		put(c.text)
		check(c.text, c.want, c.closed)
	}
	put("ann:" + ann + "::agents\nbob:" + bob + "\n")
	check("good again", "ann/agents bob", false)
	testkit.Must(t, os.Remove(file))
	check("gone", "ann/agents bob", false)
	f.since = f.since.Add(-tokenFileGrace)
	check("gone for long", "", true)
	put("bob:" + bob)
	check("back", "bob", false)
}

// The faults of a token file
// never show a hash, which may be a token that was put there by mistake.
func FuzzTokens(f *testing.F) {
	hash := strings.Repeat("9f", 32)
	for _, s := range []string{"ann:" + hash, "# c\n\nann : " + hash + "\r\nbob:" + strings.ToUpper(hash), "ann:" + hash + "\nann:" + hash, "ann", "ann:" + hash + ":web:agents, merge,person", "ann:" + hash + "::" + hash, ":" + hash, "ann:secret-secret", "\xff:" + hash} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseTokens(data)
		if err != nil {
			names := "" // what is before the colons may be shown
			for line := range strings.Lines(string(data)) {
				before, _, _ := strings.Cut(line, ":")
				names += before + "\n"
			}
			for line := range strings.Lines(string(data)) {
				if _, secret, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && len(secret) >= 20 && !strings.Contains(names, secret) && strings.Contains(err.Error(), secret) {
					t.Errorf("%v shows %q", err, secret)
				}
			}
			return
		}
		var again strings.Builder
		for _, c := range all {
			testkit.True(t, config.CheckTokenName(c.Name) == nil && c.Rights&^config.AllRights == 0, "the token %+v", c)
			fmt.Fprintf(&again, "%s:%s:%s:%s\n", c.Name, c.SHA256, c.Group, c.Rights)
		}
		second, err := parseTokens([]byte(again.String()))
		testkit.Need(t, err == nil && len(second) == len(all), "%q: %v", again.String(), err)
		for i := range all {
			testkit.Equal(t, all[i], second[i])
		}
	})
}

// A server on loopback takes no Host but this machine's own, however it is written,
// and no Origin (DNS rebinding).
func FuzzSites(f *testing.F) {
	for _, s := range []string{"localhost:8000", "LOCALHOST.", "127.0.0.1", "[::1]:80", "127.0.0.1.evil.example", "localhost.evil.example", "http://localhost:1", "https://[::1]",
		"http://localhost@evil.example", "http://evil.example#localhost", "null", "file://localhost", "[::ffff:127.0.0.1]", "0x7f.1", "::1%lo", "[localhost]:1", "localhost:1:2"} {
		f.Add(s)
	}
	own := sites{loopback: true, host: "127.0.0.1", addr: netip.MustParseAddr("127.0.0.1")}
	f.Fuzz(func(t *testing.T, header string) {
		if own.takesHost(header, config.HTTP{}) {
			// By hand, and from the other end: what may be before a port, and nothing else.
			name := strings.ToLower(header)
			if i := strings.LastIndexByte(name, ':'); i >= 0 && (strings.Count(name, ":") == 1 || strings.HasSuffix(name[:i], "]")) {
				name = name[:i]
			}
			name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
			addr, err := netip.ParseAddr(name)
			testkit.True(t, name == "localhost" || name == "localhost." || err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback(), "the Host %q is taken", header)
		}
		testkit.True(t, header == "" || !own.takesOrigin(header, config.HTTP{}), "the Origin %q is taken", header)
	})
}
