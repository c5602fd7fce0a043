package web

import (
	"net/netip"
	"strings"
	"testing"

	"deepwork/catalog/config"
)

func TestHosts(t *testing.T) {
	loopback := sites{loopback: true, host: "127.0.0.1", addr: netip.MustParseAddr("127.0.0.1")}
	one := sites{host: "build.example.com", addr: netip.MustParseAddr("10.0.0.7")}
	all := sites{host: "0.0.0.0", addr: netip.IPv4Unspecified()}
	named := config.HTTP{AllowedHosts: []string{"deep.example.com", "::7"}}
	for _, test := range []struct {
		sites    sites
		settings config.HTTP
		hosts    string
		taken    bool
	}{
		{loopback, config.HTTP{}, "localhost localhost:80 LocalHost:8000 127.0.0.1 127.0.0.1:8000 127.1.2.3:9 [::1] [::1]:8000 ::1 localhost.", true},
		{loopback, config.HTTP{}, "example.com localhost.example.com 127.0.0.1.nip.io 10.0.0.7 0.0.0.0 [::2]:80 deep.example.com notlocalhost x.localhost 127.0.0.1. 127.0.0.1@evil.com 2130706433 0x7f.1", false},
		{loopback, named, "deep.example.com Deep.Example.com:443 [::7]:8000 localhost:1", true},
		{loopback, named, "example.com x.deep.example.com", false},
		{one, config.HTTP{}, "build.example.com BUILD.example.com:8000 10.0.0.7 10.0.0.7:8000 [::ffff:10.0.0.7]:1", true},
		{one, config.HTTP{}, "localhost example.com 10.0.0.8 127.0.0.1", false},
		{all, config.HTTP{}, "whatever.example.com 10.0.0.7:1 localhost", true},
		{all, named, "deep.example.com:1", true},
		{all, named, "whatever.example.com 10.0.0.7", false},
	} {
		for host := range strings.FieldsSeq(test.hosts) {
			if got := test.sites.takesHost(host, test.settings); got != test.taken {
				t.Errorf("%s on %s: %v", host, test.sites.host, got)
			}
		}
		if test.sites.loopback && test.sites.takesHost("", test.settings) {
			t.Error("no host is taken")
		}
	}
}

func TestOrigins(t *testing.T) {
	own := sites{loopback: true, host: "localhost", origin: "http://127.0.0.1:8000"}
	named := config.HTTP{AllowedOrigins: []string{"https://app.example.com", "http://localhost:3000"}}
	for _, test := range []struct {
		settings config.HTTP
		origins  string
		taken    bool
	}{
		{config.HTTP{}, "http://localhost http://localhost:6274 https://127.0.0.1:1 http://[::1]:8000", false},
		{config.HTTP{}, "http://127.0.0.1:8000", true},
		{config.HTTP{}, "https://127.0.0.1:8000 http://127.0.0.1:8001 http://127.0.0.1 http://localhost:8000 http://127.0.0.2:8000 http://[::ffff:127.0.0.1]:8000", false},
		{config.HTTP{}, "null https://app.example.com http://localhost.example.com file:// http://10.0.0.7 localhost ftp://localhost", false},
		{named, "https://app.example.com https://APP.example.com http://localhost:3000", true},
		{named, "http://app.example.com https://app.example.com:444 https://x.app.example.com http://localhost:3001 http://127.0.0.1:3000 https://localhost:3000 http://localhost null", false},
	} {
		for origin := range strings.FieldsSeq(test.origins) {
			if got := own.takesOrigin(origin, test.settings); got != test.taken {
				t.Errorf("%s with %v: %v", origin, test.settings.AllowedOrigins, got)
			}
		}
		if !own.takesOrigin("", test.settings) {
			t.Error("what is no browser is refused")
		}
	}
}
