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
)

// HTTP configures the network transports (key http).
type HTTP struct {
	// Tokens are the callers that may call; with any, a bearer token is needed.
	Tokens []Token
	// IdleTimeout is how long a connection may be silent before it is let go;
	// its sessions stay resumable. Default 1 h; 0: never.
	IdleTimeout time.Duration
	// AllowedHosts are Host headers that are taken besides those of the address
	// that is listened on, without a port and in lower case; AllowedOrigins the
	// Origins of web pages that may call, as scheme://host[:port], in lower case.
	AllowedHosts   []string
	AllowedOrigins []string
	// MaxConnections bounds the network connections that are open at once.
	// Default 6,000.
	MaxConnections int
	// MaxRequests bounds the requests that are in flight at once. Default 1,024.
	MaxRequests int
	// MaxBodyBytes bounds the body of one request. Default 4 MiB.
	MaxBodyBytes int
}

// A Token lets one caller in: the name is the caller's identity.
type Token struct {
	Name   string // of letters, digits, '.', '_' and '-', 1 to 64 of them
	SHA256 string // of the token, as 64 lower-case hex digits
}

func defaultHTTP() HTTP {
	return HTTP{IdleTimeout: time.Hour, MaxConnections: 6000, MaxRequests: 1024, MaxBodyBytes: 4 << 20}
}

// The most that the limits of http may be; more is a slip of the finger.
const (
	maxConnections = 1_000_000
	maxRequests    = 100_000
	leastBody      = 1 << 10
	maxBody        = 256 << 20
)

func (p *parser) http(n *yaml.Node, path string, h *HTTP) {
	p.mapping(n, path, map[string]field{
		"tokens": func(n *yaml.Node, path string) { h.Tokens = p.tokens(n, path) },
		"idle_timeout": func(n *yaml.Node, path string) {
			p.duration(n, path, 0, &h.IdleTimeout)
		},
		"allowed_hosts":   func(n *yaml.Node, path string) { h.AllowedHosts = p.checked(n, path, hostName) },
		"allowed_origins": func(n *yaml.Node, path string) { h.AllowedOrigins = p.checked(n, path, origin) },
		"max_connections": func(n *yaml.Node, path string) { p.whole(n, path, 1, maxConnections, &h.MaxConnections) },
		"max_requests":    func(n *yaml.Node, path string) { p.whole(n, path, 1, maxRequests, &h.MaxRequests) },
		"max_body_bytes":  func(n *yaml.Node, path string) { p.whole(n, path, leastBody, maxBody, &h.MaxBodyBytes) },
	})
}

func (p *parser) tokens(n *yaml.Node, path string) []Token {
	if n = deref(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.at(n, path, "is %s, and is to be a list of tokens, each {name: …, sha256: …}", kindName(n))
		return nil
	}
	var out []Token
	first := make(map[string]int, len(n.Content)) // the line of each name
	for i, item := range n.Content {
		at, item := element(path, i), deref(item)
		if isNull(item) {
			p.at(item, at, "is empty, and is to be a token, {name: …, sha256: …}")
			continue
		}
		before := len(p.faults)
		var t Token
		var given [2]bool
		p.mapping(item, at, map[string]field{
			"name":   func(n *yaml.Node, path string) { t.Name, given[0] = p.tokenName(n, path, first), true },
			"sha256": func(n *yaml.Node, path string) { t.SHA256, given[1] = p.tokenHash(n, path), true },
		})
		if item.Kind == yaml.MappingNode {
			for i, key := range []string{"name", "sha256"} {
				if !given[i] {
					p.at(item, at, "has no %s", key)
				}
			}
		}
		if len(p.faults) == before {
			out = append(out, t)
		}
	}
	return out
}

func (p *parser) tokenName(n *yaml.Node, path string, first map[string]int) string {
	s, ok := p.text(n, path)
	if !ok {
		return ""
	}
	if err := CheckTokenName(s); err != nil {
		p.at(n, path, "%v", err)
		return ""
	}
	if line, twice := first[s]; twice {
		p.at(n, path, "%q is here a second time; the first is in line %d", s, line)
		return ""
	}
	first[s] = n.Line
	return s
}

func (p *parser) tokenHash(n *yaml.Node, path string) string {
	s, ok := p.text(n, path)
	if !ok {
		return ""
	}
	hash, err := ParseTokenHash(s)
	if err != nil {
		p.at(n, path, "%v", err)
	}
	return hash
}

// CheckTokenName returns what is wrong with a token's name, or nil. Names are
// the identities of callers and stand in logs and session files.
func CheckTokenName(name string) error {
	ok := len(name) >= 1 && len(name) <= 64 && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
	if !ok {
		return fmt.Errorf("%q is not a name for a token: it is 1 to 64 letters, digits, '.', '_' and '-'", clip(name))
	}
	if strings.EqualFold(name, "local") {
		return fmt.Errorf("%q is the name of callers without a token: choose another, so that they do not share their sessions", name)
	}
	return nil
}

// ParseTokenHash reads the SHA-256 of a token, 64 hex digits, and returns it in
// lower case. The error does not show what was given: somebody may have written
// the token itself.
func ParseTokenHash(s string) (string, error) {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		return "", fmt.Errorf("is not the SHA-256 of a token, 64 hex digits (it has %d characters); deepwork token new prints one", len(s))
	}
	return strings.ToLower(s), nil
}

// checked takes a list of texts, each of which check makes uniform or refuses.
// Each value is kept once.
func (p *parser) checked(n *yaml.Node, path string, check func(string) (string, error)) []string {
	if n = deref(n); isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		p.at(n, path, "is %s, and is to be a list of texts", kindName(n))
		return nil
	}
	var out []string
	for i, item := range n.Content {
		s, ok := p.text(item, element(path, i))
		if !ok {
			continue
		}
		uniform, err := check(s)
		if err != nil {
			p.at(item, element(path, i), "%q %v", clip(s), err)
		} else if !slices.Contains(out, uniform) {
			out = append(out, uniform)
		}
	}
	return out
}

func hostName(s string) (string, error) {
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

func origin(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || strings.Contains(u.Host, "*") ||
		u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "#") {
		return "", fmt.Errorf("is not an origin: write scheme://host or scheme://host:port, without a path and wildcards, as in https://app.example.com")
	}
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}

// whole takes a whole number from least to most.
func (p *parser) whole(n *yaml.Node, path string, least, most int, to *int) {
	if n = deref(n); isNull(n) {
		return
	}
	var v int
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil || v < least || v > most {
		p.at(n, path, "is %s, and is to be a whole number from %d to %d", kindName(n), least, most)
		return
	}
	*to = v
}
