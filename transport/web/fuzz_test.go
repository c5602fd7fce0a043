package web

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"deepwork/catalog/config"
)

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
			if config.CheckTokenName(c.Name) != nil || c.Rights&^config.AllRights != 0 {
				t.Errorf("the token %+v", c)
			}
			fmt.Fprintf(&again, "%s:%s:%s:%s\n", c.Name, c.SHA256, c.Group, c.Rights)
		}
		second, err := parseTokens([]byte(again.String()))
		if err != nil || len(second) != len(all) {
			t.Fatalf("%q: %v", again.String(), err)
		}
		for i := range all {
			if all[i] != second[i] {
				t.Errorf("%+v became %+v", all[i], second[i])
			}
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
			if name != "localhost" && name != "localhost." && (err != nil || addr.Zone() != "" || !addr.Unmap().IsLoopback()) {
				t.Errorf("the Host %q is taken", header)
			}
		}
		if header != "" && own.takesOrigin(header, config.HTTP{}) {
			t.Errorf("the Origin %q is taken", header)
		}
	})
}
