package web

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"deepwork/catalog/jsontext"
)

// A peer is the user that owns the client's end of a connection on loopback.
type peer struct {
	user uint32
	err  error // why it is not known
}

// errNoPeers is why the owner of a connection is not known on a system that does not tell it.
var errNoPeers = errors.New("this system does not tell which user a connection is of")

// errForeign refuses a request that came through a proxy, or by a connection that is not known to be
// the user's on a system that can tell.
type errForeign struct{ error }

// howToGetToken tells a caller that is not the user what to do.
const howToGetToken = "the person who runs the server makes one with deepwork token new NAME and starts the server with --token-file; send it as Authorization: Bearer TOKEN"

// peerOf returns the owner of the client's end of a connection that was just accepted.
func peerOf(conn net.Conn) peer {
	client, ok := conn.RemoteAddr().(*net.TCPAddr)
	server, ok2 := conn.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return peer{err: errNoPeers}
	}
	user, err := ownerOf(unmapped(client), unmapped(server))
	return peer{user, err}
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// refused returns why a connection without a token is refused, or nil: only the user of this process
// and root, for the relays of containers, act as the user.
func (p peer) refused() error {
	switch {
	case errors.Is(p.err, errNoPeers):
		return fmt.Errorf("a bearer token is needed, since %w: send the one that deepwork token show prints, as Authorization: Bearer TOKEN", p.err)
	case p.err != nil:
		return errForeign{fmt.Errorf("it is not known whose connection this is (%w): connect again", p.err)}
	case p.user == 0 || int(p.user) == os.Geteuid():
		return nil
	}
	return errForeign{fmt.Errorf("this connection is of another user of this machine, with the id %d, who needs a token: %s", p.user, howToGetToken)}
}

// A proxy or a tunnel on this machine connects as its own user, no matter who sent the request that
// it forwards. Most can be recognized: they add headers, or pass on the Host that the sender used.
// One that does neither looks like a program of the user, so the documentation asks for tokens behind
// any proxy.

// proxyHeaders are the beginnings of the names of headers that proxies and tunnels add, in canonical
// form.
var proxyHeaders = []string{
	"Forwarded", "X-Forward", "Via",
	"X-Real-", "X-Original-", "X-Envoy-",
	"Cf-", "Cdn-", // Cloudflare
	"Ngrok-", "X-Ngrok-",
	"Tailscale-",
}

// sentByProxy returns the name of a header that shows that a request came through a proxy, or "".
func sentByProxy(r *http.Request) string {
	for name := range r.Header {
		// Many proxies have their own header for the sender's address: True-Client-IP, Fly-Client-IP.
		if strings.HasSuffix(name, "-Ip") || slices.ContainsFunc(proxyHeaders, func(begin string) bool { return strings.HasPrefix(name, begin) }) {
			return name
		}
	}
	if !IsLoopback(hostOf(r.Host)) { // any port will do: a forwarded port may have another number
		return "Host"
	}
	return ""
}

// notOwner returns why a request without a token is not the user's, or nil.
func notOwner(r *http.Request) error {
	if header := sentByProxy(r); header != "" {
		return errForeign{fmt.Errorf("this request came through a proxy, as its header %s shows, and needs a token, since it is not known who sent it: %s",
			jsontext.Clip(header, 100), howToGetToken)}
	}
	if c, _ := r.Context().Value(socketKey{}).(*socket); c != nil {
		return c.peer.refused()
	}
	return peer{err: errNoPeers}.refused()
}
