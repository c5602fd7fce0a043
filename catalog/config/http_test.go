package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"deepwork/catalog/job"
)

// parseUser is Parse for the user's file.
func parseUser(file string, source []byte) (*Config, job.Diagnostics) {
	u, faults := ParseUser(file, source)
	if u == nil {
		return nil, faults
	}
	return u.Over(Default()), nil
}

func TestHTTP(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	second, third := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	c, faults := parseUser("config.yml", []byte(`
http:
  tokens:
    - {name: ci.build-1, sha256: `+hash+`}
    - name: Ann_2
      sha256: `+strings.ToUpper(second)+`
    - {name: Ann_2, sha256: `+third+`, group: web, rights: [person, agents]}
  idle_timeout: 90m
  allowed_hosts: [Build.example.com, "[::1]", build.example.com, 10.0.0.7]
  allowed_origins: ["https://App.example.com", "http://localhost:6274"]
  max_connections: 20000
  max_requests: 64
  max_body_bytes: 1048576
  quotas: {requests: 10}
`))
	must(t, faults.Err())
	want := HTTP{
		Tokens:         []Token{{Name: "ci.build-1", SHA256: hash}, {Name: "Ann_2", SHA256: second}, {"Ann_2", third, "web", RightAgents | RightPerson}},
		IdleTimeout:    90 * time.Minute,
		AllowedHosts:   []string{"build.example.com", "::1", "10.0.0.7"},
		AllowedOrigins: []string{"https://app.example.com", "http://localhost:6274"},
		MaxConnections: 20000, MaxRequests: 64, MaxBodyBytes: 1 << 20,
		Quotas: Quotas{10},
	}
	if !reflect.DeepEqual(c.HTTP, want) {
		t.Errorf("%+v\nwant %+v", c.HTTP, want)
	}
	for _, source := range []string{"http:", "http: {}", "http: {tokens: , allowed_hosts: ~, max_requests: null, idle_timeout: }"} {
		if c, faults := parseUser("config.yml", []byte(source)); faults != nil || !reflect.DeepEqual(c, Default()) {
			t.Errorf("%s: %+v %v", source, c, faults)
		}
	}
	if c, faults := parseUser("config.yml", []byte("http: {idle_timeout: 0}")); faults != nil || c.HTTP.IdleTimeout != 0 {
		t.Errorf("never: %+v %v", c, faults)
	}
}

func TestHTTPFaults(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, test := range map[string]struct{ source, want string }{
		"a number":       {"http: 8000", "config.yml:1:7: http: is a number (8000); expected a mapping with the keys allowed_hosts, "},
		"no token":       {"http: {tokens: [~]}", "config.yml:1:17: http.tokens[0]: is empty"},
		"a text":         {"http: {tokens: [abc]}", "config.yml:1:17: http.tokens[0]: is a text (\"abc\"); expected a mapping with the keys group, name, rights, sha256"},
		"twice":          {"http: {tokens: [{name: a, sha256: " + hash + "}, {name: b, sha256: " + hash + "}]}", `config.yml:1:102: http.tokens[1]: "b" has the sha256 of "a" before it`},
		"no name":        {"http: {tokens: [{sha256: " + hash + "}]}", "config.yml:1:17: http.tokens[0]: has no name"},
		"no hash":        {"http: {tokens: [{name: a}]}", "config.yml:1:17: http.tokens[0]: has no sha256"},
		"local's name":   {"http: {tokens: [{name: Local, sha256: " + hash + "}]}", `config.yml:1:24: http.tokens[0].name: "Local" is the name of callers without a token`},
		"bad name":       {"http: {tokens: [{name: a b, sha256: " + hash + "}]}", `config.yml:1:24: http.tokens[0].name: "a b" is not a name for a token`},
		"long name":      {"http: {tokens: [{name: " + strings.Repeat("a", 65) + ", sha256: " + hash + "}]}", `config.yml:1:24: http.tokens[0].name: "aaa`},
		"bad group":      {"http: {tokens: [{name: a, sha256: " + hash + ", group: a b}]}", `config.yml:1:108: http.tokens[0].group: "a b" is not a name for a group`},
		"no right":       {"http: {tokens: [{name: a, sha256: " + hash + ", rights: [agents, all]}]}", `config.yml:1:118: http.tokens[0].rights[1]: "all" is not a right: the rights are agents, merge, person`},
		"the token":      {"http: {tokens: [{name: a, sha256: secret}]}", "config.yml:1:35: http.tokens[0].sha256: is not the SHA-256 of a token, 64 hex digits (it has 6 characters)"},
		"not hex":        {"http: {tokens: [{name: a, sha256: " + strings.Repeat("x", 64) + "}]}", "config.yml:1:35: http.tokens[0].sha256: is not the SHA-256"},
		"host with port": {"http: {allowed_hosts: ['a:80']}", `config.yml:1:24: http.allowed_hosts[0]: "a:80" is not a host`},
		"any host":       {"http: {allowed_hosts: ['*']}", `config.yml:1:24: http.allowed_hosts[0]: "*" is not a host`},
		"empty host":     {"http: {allowed_hosts: ['']}", `config.yml:1:24: http.allowed_hosts[0]: "" is not a host`},
		"bare origin":    {"http: {allowed_origins: [example.com]}", `config.yml:1:26: http.allowed_origins[0]: "example.com" is not an origin`},
		"origin's path":  {"http: {allowed_origins: ['https://a.com/']}", `config.yml:1:26: http.allowed_origins[0]: "https://a.com/" is not an origin`},
		"any origin":     {"http: {allowed_origins: ['https://*.a.com']}", `config.yml:1:26: http.allowed_origins[0]: "https://*.a.com" is not an origin`},
		"negative":       {"http: {idle_timeout: -1}", "config.yml:1:22: http.idle_timeout: is -1s; expected 0s"},
		"no connection":  {"http: {max_connections: 0}", "config.yml:1:25: http.max_connections: is a number (0); expected a whole number from 1 to 1000000"},
		"no request":     {"http: {max_requests: 100001}", "config.yml:1:22: http.max_requests: is a number (100001); expected a whole number from 1 to 100000"},
		"no quota":       {"http: {quotas: {requests: 0}}", "config.yml:1:27: http.quotas.requests: is a number (0); expected a whole number from 1 to 100000"},
		"sessions":       {"http: {quotas: {sessions: 10}}", "config.yml:1:17: http.quotas.sessions: unknown key; the keys here are requests"},
		"reviews":        {"http: {quotas: {reviews: 10}}", "config.yml:1:17: http.quotas.reviews: unknown key; the keys here are requests"},
		"no body":        {"http: {max_body_bytes: 100}", "config.yml:1:24: http.max_body_bytes: is a number (100); expected a whole number from 1024 to 268435456"},
	} {
		t.Run(name, func(t *testing.T) {
			c, faults := parseUser("config.yml", []byte(test.source))
			if c != nil || len(faults) != 1 || !strings.HasPrefix(faults.Error(), test.want) {
				t.Errorf("got %+v\n%v\nwant %s", c, faults, test.want)
			}
		})
	}
	// Every fault is told, and a token is never repeated in one.
	_, faults := parseUser("config.yml", []byte("http: {tokens: [{name: '', sha256: my-secret-token}, {}], max_requests: x}"))
	if len(faults) != 5 || strings.Contains(faults.Error(), "my-secret") {
		t.Errorf("%d faults: %v", len(faults), faults)
	}
}
