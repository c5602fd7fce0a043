// Package hosts has the form of hosts with their ports, and lists of those that a program may connect to.
package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A List has the hosts that a program may connect to, each as Parse returns it.
type List []string

// Parse checks the form of a host with its port, such as api.example.com:443, *.example.com:443 or 192.0.2.7:8080, and
// returns it in lower case. Only what begins with a star and a dot matches more than one host.
func Parse(s string) (string, error) {
	if _, _, scheme := strings.Cut(s, "://"); scheme {
		return "", fmt.Errorf("%q has a scheme: give the host and its port alone, such as example.com:443", s)
	}
	name, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is not a host with its port: expected one such as example.com:443", s)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
		return "", fmt.Errorf("%q has the port %q: expected a number from 1 to 65535", s, port)
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if a, err := netip.ParseAddr(name); err == nil {
		if !Public(a) && !a.IsPrivate() {
			return "", fmt.Errorf("%q is no host of a network: forward: [%s] reaches a port of this machine", s,
				port)
		}
		return net.JoinHostPort(name, port), nil
	}
	if bare := strings.TrimPrefix(name, "*."); !isName(bare) || bare != name && !strings.Contains(bare, ".") {
		return "", fmt.Errorf("%q has the name %q: expected letters, digits, hyphens and dots, with at most one star, "+
			"as in *.example.com", s, name)
	}
	return name + ":" + port, nil
}

// isName reports whether a text is the name of a host, and not a number in one of the forms of an address.
func isName(s string) bool {
	labels := strings.Split(s, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" ||
			strings.HasPrefix(l, "-") || strings.HasSuffix(l, "-") {
			return false
		}
	}
	last := labels[len(labels)-1]
	return len(s) <= 253 && strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

// Permits reports whether a program may connect to a target, which it has named, and returns that in the form of Parse.
// The error says what is wrong with its form.
func (l List) Permits(target string) (at string, permitted bool, err error) {
	if at, err = Parse(target); err != nil || strings.HasPrefix(at, "*") {
		return "", false, errors.New("it is not a host with its port")
	}
	return at, slices.ContainsFunc(l, func(allowed string) bool {
		suffix, any := strings.CutPrefix(allowed, "*")
		return at == allowed || any && strings.HasSuffix(at, suffix) && len(at) > len(suffix)
	}), nil
}

// Public reports whether an address is one of the internet. A name that an agent's owner allowed must not lead to
// this machine or to its neighbours, whatever its owner says.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && a.IsGlobalUnicast() && !a.IsPrivate() && !a.IsLoopback() && !a.IsLinkLocalUnicast() &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// special are networks that are not the internet, or that lead to others inside of an address.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("2001::/32"), netip.MustParsePrefix("fec0::/10"),
}
