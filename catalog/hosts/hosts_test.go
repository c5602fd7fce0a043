package hosts

import (
	"net/netip"
	"strings"
	"testing"

	"deepwork/actor/testkit"
)

func TestParse(t *testing.T) {
	for s, want := range map[string]string{
		"api.example.com:443":     "api.example.com:443",
		"API.Example.com.:443":    "api.example.com:443",
		"*.example.com:443":       "*.example.com:443",
		"192.0.2.7:8080":          "192.0.2.7:8080",
		"[2001:db8::1]:443":       "[2001:db8::1]:443",
		"10.0.0.8:5432":           "10.0.0.8:5432",
		"https://example.com:443": "has a scheme",
		"https://example.com":     "has a scheme",
		"example.com":             "not a host with its port",
		"example.com:0":           "from 1 to 65535",
		"example.com:0443":        "from 1 to 65535",
		"example.com:99999":       "from 1 to 65535",
		"*:443":                   "at most one star",
		"*.com:443":               "at most one star",
		"a.*.example.com:443":     "at most one star",
		"a b.example.com:443":     "at most one star",
		"127.0.0.1:5432":          "forward: [5432]",
		"127.1:5432":              "at most one star",
		"0x7f.1:5432":             "at most one star",
		"2130706433:80":           "at most one star",
		"169.254.169.254:80":      "forward",
		"user@example.com:443":    "at most one star",
	} {
		got, err := Parse(s)
		if strings.Contains(want, ":443") || strings.HasSuffix(want, ":8080") || strings.HasSuffix(want, ":5432") {
			testkit.Works(t, err, s)
			testkit.Equal(t, got, want, s)
		} else {
			testkit.Fails(t, err, want, s)
		}
	}
}

func TestPermits(t *testing.T) {
	l := List{"api.example.com:443", "*.example.org:443", "192.0.2.7:8080"}
	for target, want := range map[string]bool{
		"api.example.com:443": true, "API.EXAMPLE.COM:443": true, "a.b.example.org:443": true, "192.0.2.7:8080": true,
		"api.example.com:80": false, "example.org:443": false, "evilexample.org:443": false,
		"api.example.com.evil.org:443": false, "192.0.2.7:80": false, "*.example.org:443": false, "": false,
	} {
		_, permitted, _ := l.Permits(target)
		testkit.Equal(t, permitted, want, target)
	}
}

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"9.9.9.9": true, "2606:4700::1111": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false, "::1": false, "::": false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false,
		"fe80::1": false, "fd00::1": false, "64:ff9b::7f00:1": false,
		"2002:7f00:1::": false, "::7f00:1": false,
	} {
		testkit.Equal(t, Public(netip.MustParseAddr(address)), want, address)
	}
}

// What is permitted has the form of Parse, which a second time changes nothing.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"a.example.com:443", "[::1]:80", "a@b:1", "*.x.y:2", "127.1:80", "x:443\r\n"} {
		f.Add(s)
	}
	l := List{"*.example.com:443", "*.x.y:2"}
	f.Fuzz(func(t *testing.T, s string) {
		at, permitted, err := l.Permits(s)
		if !permitted {
			return
		}
		testkit.Must(t, err)
		testkit.Equal(t, testkit.Get(Parse(at)).Must(t), at)
		testkit.True(t, strings.HasSuffix(at, ".example.com:443") || strings.HasSuffix(at, ".x.y:2"), "%q", at)
		testkit.True(t, strings.Trim(at, "abcdefghijklmnopqrstuvwxyz0123456789-_.:") == "", "%q", at)
	})
}
