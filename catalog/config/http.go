package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"deepwork/catalog/internal/yamltree"
)

// HTTP configures the network transports (key http).
type HTTP struct {
	// Tokens are the callers with access. If any are set, a bearer token is required.
	Tokens []Token `yaml:"tokens" own:"--token-file" is:"a list of tokens, each {name: …, sha256: …}"`
	// IdleTimeout is how long a connection may be silent before it is closed. Its sessions can still be
	// resumed. Default 1 h; 0 means never.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// AllowedHosts are Host headers to accept in addition to those of the listen address, in lower case and
	// without a port. AllowedOrigins are the Origins of web pages that may call, as scheme://host[:port], in
	// lower case.
	AllowedHosts   []string `yaml:"allowed_hosts" own:"--allowed-host" each:"host"`
	AllowedOrigins []string `yaml:"allowed_origins" own:"--allowed-origin" each:"origin"`
	// MaxConnections limits the network connections that serve a request or a stream; further requests wait.
	// Default 6,000.
	MaxConnections int `yaml:"max_connections" min:"1" max:"1000000"`
	// MaxRequests limits the number of requests in flight. Default 1,024.
	MaxRequests int `yaml:"max_requests" min:"1" max:"100000"`
	// MaxBodyBytes limits the body of a request. Default 4 MiB.
	MaxBodyBytes int `yaml:"max_body_bytes" min:"1024" max:"268435456"`
	// Quotas limit what one caller with a token may have at once.
	Quotas Quotas `yaml:"quotas" own:""`
}

// Quotas limit what one identity may have at once, so that it cannot use up what others need.
type Quotas struct {
	Requests int `yaml:"requests" min:"1" max:"100000"` // calls and other requests in flight; default 256
}

// A Token gives one caller access; its name is the caller's identity. Several tokens may have one name, so
// that a token can be replaced without interruption; each has its own group and rights.
type Token struct {
	// 1 to 64 letters, digits, '.', '_' and '-'
	Name string `yaml:"name" as:"token name" add:"the name of the caller"`
	// as 64 lower-case hex digits
	SHA256 string `yaml:"sha256" as:"token hash" add:"the SHA-256 of the token, which deepwork token new prints"`
	Group  string `yaml:"group" as:"group"`   // whose members share what they make; spelled as a name; "" means none
	Rights Rights `yaml:"rights" as:"rights"` // beyond the calls that are open to every caller
}

// CheckTokenName returns what is wrong with a token's name, or nil. Names are callers' identities and appear
// in logs and sessions.
func CheckTokenName(name string) error {
	if err := checkName("a token", name); err != nil {
		return err
	}
	if strings.EqualFold(name, "local") {
		return fmt.Errorf("%q is the name of callers without a token: choose another, so that they do not share "+
			"their sessions", name)
	}
	return nil
}

// CheckGroup returns what is wrong with the name of a group, or nil.
func CheckGroup(name string) error { return checkName("a group", name) }

func checkName(of, name string) error {
	if !plainName.MatchString(name) {
		return fmt.Errorf("%s is not a name for %s: it is 1 to 64 letters, digits, '.', '_' and '-'",
			yamltree.Quote(name), of)
	}
	return nil
}

// ParseTokenHash reads the SHA-256 of a token, 64 hex digits, and returns it in lower case. The error does
// not contain the input, which may be the token itself.
func ParseTokenHash(s string) (string, error) {
	if b, err := hex.DecodeString(s); err != nil || len(b) != 32 {
		return "",
			fmt.Errorf("is not the SHA-256 of a token, 64 hex digits (it has %d characters); deepwork token new "+
				"prints one", len(s))
	}
	return strings.ToLower(s), nil
}

// HostName checks and normalizes a host that requests may name.
func HostName(s string) (string, error) {
	host := strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if net.ParseIP(host) != nil {
		return host, nil
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`:/\*?#@[]<>"',`, r)
	}) {
		return "",
			fmt.Errorf("is not a host: write a name or an address, without scheme, port and wildcards, as in " +
				"build.example.com")
	}
	return host, nil
}

// Origin checks and normalizes the origin of web pages.
func Origin(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || strings.Contains(u.Host, "*") ||
		u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.HasSuffix(s, "?") ||
		strings.HasSuffix(s, "#") {
		return "",
			fmt.Errorf("is not an origin: write scheme://host or scheme://host:port, without a path and wildcards, " +
				"as in https://app.example.com")
	}
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}

// Rights say what a caller may do beyond the calls that are open to every caller, as a set of bits.
type Rights uint8

// The rights of a token.
const (
	RightAgents Rights = 1 << iota // start agents
	RightMerge                     // merge the work of agents
	RightPerson                    // act as a person

	AllRights = RightAgents | RightMerge | RightPerson
)

var rightNames = []string{"agents", "merge", "person"} // in the order of the bits

// String returns the names of the rights, in the form that ParseRights reads.
func (r Rights) String() string {
	var names []string
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// ParseRights reads a list of rights, separated by commas; "" means none.
func ParseRights(s string) (r Rights, err error) {
	for name := range strings.SplitSeq(s, ",") {
		name = strings.TrimSpace(name)
		i := slices.Index(rightNames, name)
		switch {
		case i >= 0:
			r |= 1 << i
		case strings.TrimSpace(s) != "":
			return 0, fmt.Errorf("%s is not a right: the rights are %s, separated by commas", yamltree.Quote(name),
				strings.Join(rightNames, ", "))
		}
	}
	return r, nil
}
