package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"deepwork/catalog/internal/yamltree"
)

// HTTP configures the network transports (key http).
type HTTP struct {
	// Tokens are the callers with access; if any are set, a bearer token is required.
	Tokens []Token
	// IdleTimeout is how long a connection may be silent before it is closed; its sessions stay
	// resumable. Default 1 h; 0 means never.
	IdleTimeout time.Duration
	// AllowedHosts are Host headers that are accepted in addition to those of the listen address,
	// without a port and in lower case. AllowedOrigins are the Origins of web pages that may call,
	// as scheme://host[:port], in lower case.
	AllowedHosts   []string
	AllowedOrigins []string
	// MaxConnections bounds the network connections that serve a request or a stream; the requests of
	// others wait. Default 6,000.
	MaxConnections int
	// MaxRequests bounds the number of requests in flight. Default 1,024.
	MaxRequests int
	// MaxBodyBytes bounds the body of a request. Default 4 MiB.
	MaxBodyBytes int
	// Quotas bound what one caller with a token has at once.
	Quotas Quotas
}

// Quotas are what one identity may have at once, so that it cannot use up what others need.
type Quotas struct {
	Requests int // calls and other requests in flight; default 256
}

// A Token gives one caller access: the name is the caller's identity. Several may have one name, so
// that a token can be replaced without an interruption; each has its own group and rights.
type Token struct {
	Name   string // of letters, digits, '.', '_' and '-', 1 to 64 of them
	SHA256 string // of the token, as 64 lower-case hex digits
	Group  string // whose members share what they make; spelled as a name; "" means none
	Rights Rights // beyond the calls that are open to every caller
}

func defaultHTTP() HTTP {
	return HTTP{IdleTimeout: time.Hour, MaxConnections: 6000, MaxRequests: 1024, MaxBodyBytes: 4 << 20,
		Quotas: Quotas{Requests: 256}}
}

// Upper bounds of the limits of http; more is probably a typing error.
const (
	maxConnections = 1_000_000
	maxRequests    = 100_000
	leastBody      = 1 << 10
	maxBody        = 256 << 20
)

func (p *parser) http(v value, h *HTTP) {
	p.mapping(v,
		p.usersOnly("tokens", "--token-file", func(v value) { h.Tokens = nil; p.tokens(v, &h.Tokens) }),
		key("idle_timeout", p.duration(0, &h.IdleTimeout)),
		p.usersOnly("allowed_hosts", "--allowed-host", p.uniform(&h.AllowedHosts, HostName)),
		p.usersOnly("allowed_origins", "--allowed-origin", p.uniform(&h.AllowedOrigins, Origin)),
		key("max_connections", p.whole(1, maxConnections, &h.MaxConnections)),
		key("max_requests", p.whole(1, maxRequests, &h.MaxRequests)),
		key("max_body_bytes", p.whole(leastBody, maxBody, &h.MaxBodyBytes)),
		p.usersOnly("quotas", "", func(v value) {
			p.mapping(v, key("requests", p.whole(1, maxRequests, &h.Quotas.Requests)))
		}),
	)
}

func (p *parser) tokens(v value, to *[]Token) {
	p.List(v, "a list of tokens, each {name: …, sha256: …}", func(_ int, v value) {
		if yamltree.IsNull(v.Target()) {
			p.wrong(v, "a token, {name: …, sha256: …}")
			return
		}
		before := p.Faults()
		var t Token
		var hasName, hasHash bool
		var rights []string
		p.mapping(v,
			key("name", func(v value) { t.Name, hasName = p.tokenName(v, CheckTokenName), true }),
			key("sha256", func(v value) { t.SHA256, hasHash = p.tokenHash(v), true }),
			key("group", func(v value) { t.Group = p.tokenName(v, CheckGroup) }),
			key("rights", p.textsThat(&rights, func(v value, s string) (string, bool) {
				right, err := ParseRights(s)
				if err != nil {
					p.fault(v, "%v", err)
				}
				t.Rights |= right
				return s, err == nil
			})),
		)
		if v.Target().Kind == yaml.MappingNode && !hasName {
			p.fault(v, "has no name")
		}
		if v.Target().Kind == yaml.MappingNode && !hasHash {
			p.fault(v, "has no sha256")
		}
		if i := slices.IndexFunc(*to, func(o Token) bool { return o.SHA256 == t.SHA256 }); i >= 0 && (*to)[i] != t {
			p.fault(v, "%q has the sha256 of %q before it: one token cannot be two callers; deepwork token new makes another", t.Name, (*to)[i].Name)
		}
		if p.Faults() == before {
			*to = append(*to, t)
		}
	})
}

func (p *parser) tokenName(v value, check func(string) error) string {
	s, ok := p.text(v)
	if err := check(s); ok && err != nil {
		p.fault(v, "%v", err)
	}
	return s
}

func (p *parser) tokenHash(v value) (hash string) {
	if s, ok := p.text(v); ok {
		var err error
		if hash, err = ParseTokenHash(s); err != nil {
			p.fault(v, "%v", err)
		}
	}
	return hash
}

// uniform reads a list of texts, each of which normalize normalizes or refuses, without duplicates.
func (p *parser) uniform(to *[]string, normalize func(string) (string, error)) func(value) {
	var seen []string
	return p.textsThat(to, func(v value, s string) (string, bool) {
		uniform, err := normalize(s)
		if err != nil {
			p.fault(v, "%q %v", clip(s), err)
		}
		twice := slices.Contains(seen, uniform)
		seen = append(seen, uniform)
		return uniform, err == nil && !twice
	})
}

// CheckTokenName returns what is wrong with a token's name, or nil. Names are the identities of
// callers and appear in logs and sessions.
func CheckTokenName(name string) error {
	if err := checkName("a token", name); err != nil {
		return err
	}
	if strings.EqualFold(name, "local") {
		return fmt.Errorf("%q is the name of callers without a token: choose another, so that they do not share their sessions", name)
	}
	return nil
}

// CheckGroup returns what is wrong with the name of a group, or nil.
func CheckGroup(name string) error { return checkName("a group", name) }

func checkName(of, name string) error {
	ok := len(name) >= 1 && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
	if !ok {
		return fmt.Errorf("%q is not a name for %s: it is 1 to 64 letters, digits, '.', '_' and '-'", clip(name), of)
	}
	return nil
}

// ParseTokenHash reads the SHA-256 of a token, 64 hex digits, and returns it in lower case. The
// error does not repeat the input, which may be the token itself.
func ParseTokenHash(s string) (string, error) {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		return "", fmt.Errorf("is not the SHA-256 of a token, 64 hex digits (it has %d characters); deepwork token new prints one", len(s))
	}
	return strings.ToLower(s), nil
}

// HostName checks a host that requests may name, and normalizes it.
func HostName(s string) (string, error) {
	host := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if net.ParseIP(host) != nil {
		return host, nil
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`:/\*?#@[]<>"',`, r)
	}) {
		return "", fmt.Errorf("is not a host: write a name or an address, without scheme, port and wildcards, as in build.example.com")
	}
	return host, nil
}

// Origin checks the origin of web pages, and normalizes it.
func Origin(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || strings.Contains(u.Host, "*") ||
		u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "#") {
		return "", fmt.Errorf("is not an origin: write scheme://host or scheme://host:port, without a path and wildcards, as in https://app.example.com")
	}
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}
